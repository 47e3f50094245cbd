"""From settings to the pieces of one engine, each told what it needs and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.attention.backend import select_attention
from minipaged.config import EngineConfig
from minipaged.device import check_given_model, resolve_device, resolve_dtype
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.cache import KVCache
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.kv.swap import SwapCache, SwapSpace
from minipaged.memory_plan import MemoryPlan, plan_memory
from minipaged.model.loader import LoadedModel, load_model
from minipaged.parts import Parts
from minipaged.runner import ModelRunner
from minipaged.scheduler import Scheduler


@dataclass(frozen=True)
class Machinery:
    """The pieces of an engine: see the classes' own docstrings."""

    model: LoadedModel
    memory_plan: MemoryPlan
    manager: BlockManager
    scheduler: Scheduler
    kv_cache: KVCache
    runner: ModelRunner


def assemble(config: EngineConfig, model: LoadedModel | None, *, progress: bool) -> Machinery:
    """Load the model, unless one is given; plan the memory; make the rest.

    Raises:
        ConfigError: settings that contradict each other, or a pool too small for one request.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    if model is None:
        model = load_configured_model(config, progress=progress)
    else:
        check_given_model(config, model)
    decoder, shape, parts = model.decoder, model.config, config.parts or Parts()
    plan = plan_memory(config, shape, decoder.dtype, decoder.device)
    manager, scheduler = make_bookkeeping(config, plan)
    num_cpu_blocks = plan.num_cpu_blocks
    kv_cache = KVCache(
        num_layers=shape.num_layers,
        num_blocks=plan.num_blocks,
        block_size=config.block_size,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=decoder.dtype,
        device=decoder.device,
    )
    runner = ModelRunner(
        decoder,
        kv_cache,
        attention=parts.attention or select_attention(config.attention_backend, decoder.device),
        write_kv=parts.write_kv,
        slot_mapping=parts.slot_mapping,
        eos_token_ids=shape.eos_token_ids,
        swap_cache=None if num_cpu_blocks is None else SwapCache(kv_cache, num_cpu_blocks),
    )
    return Machinery(model, plan, manager, scheduler, kv_cache, runner)


def load_configured_model(config: EngineConfig, *, progress: bool = False) -> LoadedModel:
    """Load the model that the settings name, on their device and in their dtype.

    Raises:
        ConfigError: no such device.
        ModelNotFoundError, UnsupportedModelError, WeightsError: the model cannot be loaded.
    """
    device = resolve_device(config.device)
    return load_model(
        config.model,
        dtype=resolve_dtype(config.dtype, device),
        device=device,
        load_format=config.load_format,
        seed=config.seed,
        progress=progress,
    )


def make_bookkeeping(config: EngineConfig, plan: MemoryPlan) -> tuple[BlockManager, Scheduler]:
    """The block manager and the scheduler of an engine that has no requests."""
    parts = config.parts or Parts()
    manager = BlockManager(
        plan.num_blocks,
        config.block_size,
        PrefixHasher(config.prefix_caching_hash_algo, hash_fn=parts.hash_function)
        if config.enable_prefix_caching
        else None,
    )
    num_cpu_blocks = plan.num_cpu_blocks
    scheduler = Scheduler(
        manager,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        enable_chunked_prefill=config.enable_chunked_prefill,
        policy=config.scheduling_policy,
        swap_space=None
        if num_cpu_blocks is None
        else SwapSpace(manager.pool, num_cpu_blocks, config.block_size),
    )
    return manager, scheduler
