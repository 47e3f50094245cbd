"""Making the parts of an engine from its settings. Each part gets only the settings that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import torch

from minipaged.attention.backend import (
    CacheFunctions,
    check_attention,
    resolve_backend,
    select_attention,
    select_cache_functions,
)
from minipaged.attention.layout import AttentionLayout
from minipaged.attention.own_decode import OwnDecode
from minipaged.attention.paged_layout import PagedLayout
from minipaged.baseline.attend_one import select_attend_one
from minipaged.baseline.contiguous_layout import ContiguousLayout
from minipaged.baseline.contiguous_manager import CopySlots
from minipaged.baseline.uncached_layout import UncachedLayout
from minipaged.config import EngineConfig
from minipaged.cpu.compiler.thread_limit import at_most_threads
from minipaged.engine.bookkeeping_kinds import OBSERVED, PLAIN
from minipaged.engine.device import check_exactness, check_given_model, resolve_device, resolve_dtype
from minipaged.engine.machine import usable_cpus
from minipaged.engine.memory_plan import MemoryPlan, check_before_loading, make_region_allocator, plan_memory
from minipaged.engine.step_memory import step_bytes
from minipaged.errors import ConfigError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.cache import CopyBlocks, KVCache, copy_blocks
from minipaged.kv.event_stream import EventStream
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.kv.swap_cache import SwapCache
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import Decoder
from minipaged.parts import Parts
from minipaged.runner.capture import on_device
from minipaged.runner.decode_steps import make_capture, make_decode_steps
from minipaged.runner.model_runner import ModelRunner
from minipaged.runner.warm_up import warm_up
from minipaged.sampling.sampler import DrawTokens, draw_tokens
from minipaged.scheduler.scheduler import Scheduler
from minipaged.triton_kernels.setup import prepare_triton


@dataclass(frozen=True)
class Machinery:
    """The parts of an engine. Each class documents itself."""

    model: LoadedModel
    memory_plan: MemoryPlan
    kv_manager: KVManager
    scheduler: Scheduler
    kv_cache: KVCache
    runner: ModelRunner


def assemble(
    config: EngineConfig, model: LoadedModel | None, events: EventStream | None = None, *, progress: bool
) -> Machinery:
    """Load the model if none is given, plan the memory, and make the other parts.

    With `events`, the parts tell an observer what they do.

    Raises:
        ConfigError: the settings contradict each other, the pool is too small for one request, or a GPU is
            too small for the model's attention.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    is_own = model is None
    if model is None:
        model = load_configured_model(config, progress=progress, check=partial(check_before_loading, config))
    else:
        check_given_model(config, model)
    decoder = _choose_decoder(config, model.decoder, is_own=is_own)
    check_exactness(decoder.device, decoder.dtype)
    if is_own and decoder.device.type == "cpu" and type(decoder) is not Decoder:
        model = replace(model, decoder=decoder)  # `decoder` has taken over the plain decoder's weights
    with on_device(decoder.device):
        return _assemble_around(decoder, config, model, events)


def _assemble_around(
    decoder: Decoder, config: EngineConfig, model: LoadedModel, events: EventStream | None
) -> Machinery:
    shape = model.config
    if config.kv_layout == "paged" and (config.parts or Parts()).attention is None:
        group = shape.num_heads // shape.num_kv_heads
        check_attention(
            config.attention_backend,
            decoder.device,
            group=group,
            head_dim=shape.head_dim,
            dtype=decoder.dtype,
        )
    plan = plan_memory(
        config,
        shape,
        decoder.dtype,
        decoder.device,
        step_bytes=lambda: step_bytes(
            decoder,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            with_graphs=make_capture(config, decoder) is not None,
        ),
    )
    num_cpu_blocks = plan.num_cpu_blocks
    kv_cache = KVCache(
        num_layers=shape.num_layers,
        num_blocks=plan.num_blocks,
        block_size=config.block_size,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=decoder.dtype,
        device=decoder.device,
        copy_blocks=_copy_blocks(config, decoder),
    )
    kv_manager, scheduler = make_bookkeeping(config, plan, kv_cache.copy_slots, events)
    layout = _make_layout(config, decoder, kv_cache)
    draws = _choose_draw(config, decoder.device)
    warm_up(config, decoder, layout, draws, max_model_len=plan.max_model_len)
    runner = ModelRunner(
        decoder,
        kv_cache,
        layout=layout,
        eos_token_ids=shape.eos_token_ids,
        swap_cache=None if num_cpu_blocks is None else SwapCache(kv_cache, num_cpu_blocks),
        decode_steps=make_decode_steps(config, decoder, layout, max_model_len=plan.max_model_len),
        draw_tokens=draws,
    )
    return Machinery(model, plan, kv_manager, scheduler, kv_cache, runner)


def _choose_decoder(config: EngineConfig, decoder: Decoder, *, is_own: bool) -> Decoder:
    """The decoder that an engine runs: the plain one, or one in compiled code (on CUDA, with fused kernels).

    Args:
        config: the settings.
        decoder: the decoder as it was loaded.
        is_own: whether no other engine uses this decoder.

    Raises:
        ConfigError: `compiled_layers=True`, and the model cannot be compiled.
    """
    wanted = config.compiled_layers
    compiles_for = {"cpu": "cpu", "cuda": "triton"}  # the attention backend that goes with compiled layers
    backend = compiles_for.get(decoder.device.type)
    if wanted and backend is None:
        raise ConfigError(
            f"compiled_layers=True needs device='cpu' or 'cuda', not {str(decoder.device)!r}; leave it out"
        )
    if wanted is None:
        wanted = resolve_backend(config.attention_backend, decoder.device) == backend
    if wanted and backend == "triton":
        prepare_triton(decoder.device)  # before the import: Triton decides at import how it runs kernels
        from minipaged.triton_kernels.fused import fused_decoder

        return fused_decoder(decoder, required=config.compiled_layers is True)
    if not wanted and type(decoder) is Decoder:
        return decoder
    from minipaged.cpu.replace import compiled_decoder, plain_decoder  # imports numba

    if not wanted:
        return plain_decoder(decoder)
    return compiled_decoder(decoder, required=config.compiled_layers is True, takes_over=is_own)


def _choose_draw(config: EngineConfig, device: torch.device) -> DrawTokens:
    """The function that draws tokens.

    On CUDA it is a Triton kernel if attention is one too. Otherwise it is `draw_tokens` of `sampling/`.
    """
    if device.type != "cuda" or resolve_backend(config.attention_backend, device) != "triton":
        return draw_tokens
    prepare_triton(device)  # before the import: Triton decides at import how it runs kernels
    from minipaged.triton_kernels import sampling

    return sampling.draw_tokens


def _make_layout(config: EngineConfig, decoder: Decoder, kv_cache: KVCache) -> AttentionLayout:
    scale = decoder.config.head_dim**-0.5
    match config.kv_layout:
        case "paged":
            parts = config.parts or Parts()
            attention = parts.attention or select_attention(config.attention_backend, decoder.device)
            if parts.paged_decode or parts.paged_decode_split:
                attention = OwnDecode(attention, parts.paged_decode, parts.paged_decode_split)
            return PagedLayout(
                kv_cache,
                attention=attention,
                write_kv=parts.write_kv or _cache_functions(config, decoder).write_kv,
                slot_mapping=parts.slot_mapping,
                scale=scale,
                pad_tables=parts.pad_block_tables,
            )
        case "contiguous":
            parts = config.parts or Parts()
            return ContiguousLayout(
                kv_cache,
                attend_one=parts.attend_region or select_attend_one(config.attention_backend),
                write_region=parts.write_region,
                read_region=parts.read_region,
                scale=scale,
            )
        case "none":
            return UncachedLayout(select_attend_one(config.attention_backend), scale)
        case _:
            assert_never(config.kv_layout)


def _cache_functions(config: EngineConfig, decoder: Decoder) -> CacheFunctions:
    return select_cache_functions(config.attention_backend, decoder.device)


def _copy_blocks(config: EngineConfig, decoder: Decoder) -> CopyBlocks:
    if config.kv_layout != "paged":
        return copy_blocks  # there are no blocks to copy
    given = (config.parts or Parts()).copy_blocks
    return given or _cache_functions(config, decoder).copy_blocks


def load_configured_model(
    config: EngineConfig,
    *,
    progress: bool = False,
    check: Callable[[ModelConfig, torch.dtype], None] = lambda model, dtype: None,
) -> LoadedModel:
    """Load the configured model, with the configured device and dtype.

    Args:
        config: the settings; those of the pool have no effect.
        progress: show progress bars.
        check: called with the model's shape and dtype before the weights are loaded. It may raise.

    Raises:
        ConfigError: this machine does not have the configured device.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    with at_most_threads(usable_cpus()):
        return load_model(
            config.model_name,
            dtype=dtype,
            device=device,
            load_format=config.load_format,
            seed=config.seed,
            progress=progress,
            check=lambda model: check(model, dtype),
        )


def make_bookkeeping(
    config: EngineConfig, plan: MemoryPlan, copy_slots: CopySlots, events: EventStream | None = None
) -> tuple[KVManager, Scheduler]:
    """Make the KV manager and the scheduler of an engine, without any requests.

    Args:
        config: the settings.
        plan: the numbers of blocks, and the length of the longest request.
        copy_slots: how a contiguous cache copies slots when a request forks.
        events: if given, the manager and the scheduler tell an observer what they do.
    """
    kinds = PLAIN if events is None else OBSERVED
    swap_space = None
    match config.kv_layout:
        case "paged":
            manager = _make_block_manager(kinds.paged, config, plan)
            if plan.num_cpu_blocks is not None:
                swap_space = kinds.swap_space(manager.pool, plan.num_cpu_blocks, config.block_size)
        case "contiguous":
            manager = kinds.contiguous(
                make_region_allocator(config, plan.num_blocks),
                config.block_size,
                reserve=config.reserve,
                max_model_len=plan.max_model_len,
                copy_slots=copy_slots,
            )
        case "none":
            manager = kinds.uncached(config.block_size)
        case _:
            assert_never(config.kv_layout)
    scheduler = kinds.scheduler(
        manager,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        enable_chunked_prefill=config.enable_chunked_prefill,
        policy=config.scheduling_policy,
        swap_space=swap_space,
        batching=config.batching,
        admits_surely=config.preemption_mode == "never",
    )
    if events is not None:
        events.observe(manager, scheduler, swap_space)
    return manager, scheduler


def _make_block_manager(kind: type[BlockManager], config: EngineConfig, plan: MemoryPlan) -> BlockManager:
    parts = config.parts or Parts()
    hasher = None
    if config.caches_prefixes:
        hasher = PrefixHasher(config.prefix_caching_hash_algo, hash_fn=parts.hash_function)
    return kind(
        plan.num_blocks,
        config.block_size,
        hasher,
        copies_forks=config.fork_mode == "copy",
        make_free_queue=parts.free_queue,
        fork=parts.fork,
        append=parts.append,
        free=parts.free,
    )
