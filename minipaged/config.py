"""EngineConfig: all settings of one engine, in one immutable object.

An engine reads its settings only from here, so two engines in one process never share a setting. Settings
that depend on the model (`max_model_len`, `num_blocks`) may stay `None`. The engine chooses them when it
starts, and logs its choice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Unpack, get_args

from minipaged.choices import (
    AttentionBackend,
    Batching,
    DType,
    ForkMode,
    GenerationConfigSource,
    HashAlgorithm,
    KVLayoutName,
    LoadFormat,
    PreemptionMode,
    RegionAllocatorName,
    ReserveRule,
    SchedulingPolicy,
)
from minipaged.errors import ConfigError
from minipaged.known_names import refuses_unknown_names
from minipaged.options import EngineOptions
from minipaged.stages import stage_options

if TYPE_CHECKING:
    from minipaged.parts import Parts

MAX_BLOCK_SIZE = 2**20
"""The largest `block_size`, far above the context of any model. Larger blocks would only cause overflows."""


@refuses_unknown_names("option", ConfigError)
@dataclass(frozen=True)
class EngineConfig:
    """All settings of an engine. Settings that vLLM has too have vLLM's names.

    Attributes:
        model: `"tiny"`, `"smollm2-135m"`, a folder, a `.gguf` file, or a hub id. A `Path` always means
            a folder or a file, and becomes a string that means the same; see `model_name`.
        dtype: `"auto"` means bfloat16 on a CUDA device, float16 on a CUDA device that is too old for
            bfloat16 (such as a T4), and float32 on other devices.
        device: `"auto"` means cuda if this machine has it, otherwise the CPU. Any other value is a torch
            device string, such as `"cuda:1"`. `"mps"`, the GPU of a Mac, is experimental: no test has run
            on such a GPU.
        block_size: tokens per block.
        num_blocks: blocks in the pool, including the null block. It overrides `kv_cache_memory_bytes` and
            `gpu_memory_utilization`.
        kv_cache_memory_bytes: memory for the KV cache, in bytes. It overrides `gpu_memory_utilization`.
        gpu_memory_utilization: the share of a CUDA device's memory that weights, activations and cache may
            use.
        max_model_len: the most tokens of one request, prompt and output together. `None` means the length
            that the model was trained for. `"auto"` or `-1` means the greatest length that fits into the
            pool, but at most the trained length.
        max_num_seqs: the most sequences in one step.
        max_num_batched_tokens: the token budget of one step.
        enable_chunked_prefill: whether a prompt may be computed over several steps.
        enable_prefix_caching: whether full blocks can be found again by their hash. With `None`, they can if
            blocks are shared (`kv_layout="paged"` and `fork_mode="share"`); see `caches_prefixes`.
        prefix_caching_hash_algo: the hash function: `sha256`, `sha256_cbor`, `xxhash` or `xxhash_cbor`.
        scheduling_policy: the order of requests: `"fcfs"` (first come, first served), `"priority"` (a
            smaller number is more urgent), or `"shortest"` (the shortest prompt first, with ageing). See
            `minipaged/scheduler/policy.py`.
        preemption_mode: how a preempted request continues. With `"recompute"`, its tokens are computed
            again. With `"swap"`, its blocks are copied to CPU memory and back; if CPU memory is full, its
            tokens are computed again. With `"never"`, no request is ever preempted: a request is admitted
            only if it and all running requests surely fit at their greatest lengths.
        num_cpu_blocks: blocks of CPU memory for swapping. `None` means as many as the pool has, which is
            always enough. It can be set only with `preemption_mode="swap"`.
        attention_backend: `"reference"`, `"cpu"`, `"triton"` or `"auto"`. `"auto"` means `cpu` on a CPU,
            `triton` on cuda, and `reference` on other devices. On a CPU, `triton` runs under Triton's
            interpreter, which is slow and meant for learning and tests.
        compiled_layers: whether a model runs in compiled code, or in the PyTorch code of
            `minipaged/model/`. On a CPU, the compiled code is in `minipaged/cpu/`. On cuda, kernels of
            `minipaged/triton_kernels/` replace PyTorch's small kernels. With `None`, the attention backend
            decides. With `cpu` or `triton`, the layers are compiled if the compiled code can compute this
            model and is fast on this processor. With `reference`, and so at stages 1 to 4, they run in
            PyTorch.
        enforce_eager: `True` turns off recorded decode steps. On a CUDA device with the backend `triton`,
            recorded steps are CUDA graphs, which are captured when the engine is created. On a CPU with
            compiled layers and the backend `cpu`, they are a list of calls that is recorded once. See
            `minipaged/runner/decode_steps.py`.
        load_format: `"auto"` loads the model's weights. `"dummy"` makes random weights of the same shapes.
        seed: the seed for dummy weights, and for the sampling of requests without a seed.
        generation_config: how a request without parameters is sampled. `"auto"` uses the values of the
            model's generation_config.json (temperature, top_k, top_p, min_p, repetition_penalty,
            max_new_tokens). `"vllm"` uses `SamplingParams()`. The two names are vLLM's. With either, the
            model gives the end-of-sequence tokens.
        kv_layout: how the KV cache is divided. `"paged"` means blocks, which are allocated on demand.
            `"contiguous"` means one region for each sequence. A region is reserved for the sequence's
            whole life when its request is admitted, so no request is ever preempted. `"none"` means no
            cache: each step computes its sequences from their first tokens, and the settings of the pool
            have no effect.
        reserve: the rule for the number of slots in a region: `"max"`, `"pow2"` or `"oracle"`; see
            `minipaged/baseline/reserve.py`. It can be changed only with `kv_layout="contiguous"`.
        region_allocator: how the cache's slots are divided into regions: `"first_fit"` or `"buddy"`. It can
            be changed only with `kv_layout="contiguous"`.
        batching: with `"continuous"`, requests join and leave the batch in any step. With `"static"`, a
            batch is filled from the queue and runs until its longest request ends. Then the next batch
            begins. Real static batching also pads all requests to one length. This engine computes no
            padding, so its static batching is faster than real static batching.
        fork_mode: with `"share"`, samples and beams share blocks, and a shared block is copied before a
            sequence writes into it. With `"copy"`, each sample and each beam gets a copy of all blocks. It
            has an effect only with `kv_layout="paged"`.
        parts: functions that replace the engine's own; see `minipaged.parts`.

    Raises:
        ConfigError: a value is out of its range, or two values contradict each other.
    """

    model: str | os.PathLike[str] = "tiny"
    dtype: DType = "auto"
    device: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92
    max_model_len: int | Literal["auto"] | None = None
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool | None = None
    prefix_caching_hash_algo: HashAlgorithm = "sha256"
    scheduling_policy: SchedulingPolicy = "fcfs"
    preemption_mode: PreemptionMode = "recompute"
    num_cpu_blocks: int | None = None
    attention_backend: AttentionBackend = "auto"
    compiled_layers: bool | None = None
    enforce_eager: bool = False
    load_format: LoadFormat = "auto"
    seed: int = 0
    generation_config: GenerationConfigSource = "auto"
    kv_layout: KVLayoutName = "paged"
    reserve: ReserveRule = "max"
    region_allocator: RegionAllocatorName = "first_fit"
    batching: Batching = "continuous"
    fork_mode: ForkMode = "share"
    parts: Parts | None = field(default=None, repr=False)

    @classmethod
    def at_stage(
        cls, stage: int, model: str | os.PathLike[str] = "tiny", **options: Unpack[EngineOptions]
    ) -> EngineConfig:
        """The settings of the engine as it is after a chapter of the course; see `minipaged/stages.py`.

        Args:
            stage: 1 to 8.
            model: as in `EngineConfig`.
            options: settings that override those of the stage.

        Raises:
            ConfigError: there is no such stage, or an option contradicts it.
        """
        return cls(model=model, **(stage_options(stage) | options))

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", _model_name(self.model))
        _one_of("dtype", self.dtype, get_args(DType))
        _one_of("load_format", self.load_format, get_args(LoadFormat))
        _one_of("scheduling_policy", self.scheduling_policy, get_args(SchedulingPolicy))
        _one_of("preemption_mode", self.preemption_mode, get_args(PreemptionMode))
        if self.num_cpu_blocks is not None:
            _at_least("num_cpu_blocks", self.num_cpu_blocks, 0)
            if self.preemption_mode != "swap":
                raise ConfigError("num_cpu_blocks is memory for swapping: set preemption_mode='swap' as well")
        _one_of("generation_config", self.generation_config, get_args(GenerationConfigSource))
        _one_of("kv_layout", self.kv_layout, get_args(KVLayoutName))
        _one_of("reserve", self.reserve, get_args(ReserveRule))
        _one_of("region_allocator", self.region_allocator, get_args(RegionAllocatorName))
        _one_of("batching", self.batching, get_args(Batching))
        _one_of("fork_mode", self.fork_mode, get_args(ForkMode))
        _one_of("attention_backend", self.attention_backend, get_args(AttentionBackend))
        _one_of("prefix_caching_hash_algo", self.prefix_caching_hash_algo, get_args(HashAlgorithm))
        for name in ("block_size", "max_num_seqs", "max_num_batched_tokens"):
            _at_least(name, getattr(self, name), 1)
        if self.block_size > MAX_BLOCK_SIZE:
            raise ConfigError(f"block_size must be at most {MAX_BLOCK_SIZE:,}, not {self.block_size:,}")
        if self.num_blocks is not None:
            _at_least("num_blocks", self.num_blocks, 1)
            if self.num_blocks == 1 and self.kv_layout == "paged":
                raise ConfigError(
                    "num_blocks=1 leaves no block to use: block 0 is the null block, which holds no "
                    "tokens. Ask for at least 2."
                )
        if self.kv_cache_memory_bytes is not None:
            _at_least("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1)
        if isinstance(self.max_model_len, str):
            _one_of("max_model_len", self.max_model_len, ("auto",))
        elif self.max_model_len is not None and self.max_model_len != -1:
            _at_least("max_model_len", self.max_model_len, 1)
        if not -(2**63) <= _int("seed", self.seed) < 2**64:
            raise ConfigError(f"seed must be a 64-bit integer, not {self.seed}")
        for name in ("enable_chunked_prefill", "enforce_eager"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, not {getattr(self, name)!r:.80}")
        for name in ("enable_prefix_caching", "compiled_layers"):
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigError(f"{name} must be True or False or None, not {getattr(self, name)!r:.80}")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ConfigError(f"gpu_memory_utilization must be above 0 and at most 1, not {share!r}")
        _check_conflicts(self)

    @property
    def model_name(self) -> str:
        """`model` as a string. The constructor turns a `Path` into a string."""
        assert isinstance(self.model, str)
        return self.model

    @property
    def caches_prefixes(self) -> bool:
        """Whether prefix caching is on.

        If `enable_prefix_caching` is `None`, prefix caching is on if blocks are shared.
        """
        if self.enable_prefix_caching is None:
            return self.kv_layout == "paged" and self.fork_mode == "share"
        return self.enable_prefix_caching


def _model_name(model: object) -> str:
    path = os.fspath(model) if isinstance(model, os.PathLike) else model
    if not isinstance(path, str) or not path:
        raise ConfigError(f"model must be a name or a path, not {model!r:.80}")
    if isinstance(model, str) or os.path.isabs(path) or path.startswith("~"):
        return path
    return os.path.join(os.curdir, path)  # Path("tiny") means a folder, and not the model of that name


def _int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be an integer, not {value!r}")
    return value


def _at_least(name: str, value: object, minimum: int) -> None:
    if _int(name, value) < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, not {value}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; not {value!r}")


def _check_conflicts(config: EngineConfig) -> None:
    """Refuse settings that are valid alone but not together."""
    layout = config.kv_layout
    if layout != "contiguous":
        for name, default in (("reserve", "max"), ("region_allocator", "first_fit")):
            value = getattr(config, name)
            if value != default:
                raise ConfigError(
                    f"{name}={value!r} is about reserved regions: set kv_layout='contiguous' as well, "
                    f"instead of {layout!r}"
                )
    if config.enable_prefix_caching and config.fork_mode == "copy":
        raise ConfigError(
            "enable_prefix_caching=True shares blocks between requests, and fork_mode='copy' is for an "
            "engine that shares none: turn one of them off"
        )
    if config.preemption_mode == "swap" and config.fork_mode == "copy":
        raise ConfigError(
            "preemption_mode='swap' restores blocks with their sharing, and fork_mode='copy' is for an "
            "engine that shares none: use preemption_mode='recompute', or fork_mode='share'"
        )
    if layout != "paged":
        _check_unpaged(config)
    _check_parts(config)


def _check_unpaged(config: EngineConfig) -> None:
    layout = config.kv_layout
    if config.enable_prefix_caching:
        raise ConfigError(
            f"enable_prefix_caching=True needs blocks that can be found again, and kv_layout={layout!r} has "
            "none: leave it out, or set kv_layout='paged'"
        )
    if config.preemption_mode == "swap":
        raise ConfigError(
            f"preemption_mode='swap' moves blocks, and kv_layout={layout!r} has none and never preempts: "
            "leave it out, or set kv_layout='paged'"
        )
    if config.attention_backend not in ("auto", "reference"):
        raise ConfigError(
            f"attention_backend={config.attention_backend!r} reads block tables, and kv_layout={layout!r} "
            "has none: use 'auto' or 'reference'"
        )


def unused_parts(config: EngineConfig, parts: Parts) -> dict[str, str]:
    """The replaced parts that an engine with these settings would never call.

    Args:
        config: the settings. `config.parts` is ignored.
        parts: the parts to check. The metadata of each field says with which settings the engine calls it.

    Returns:
        Maps the name of each such part to a text with the settings that it needs.
    """
    found: dict[str, str] = {}
    for part in fields(parts):
        missing = {
            name: allowed for name, allowed in part.metadata.items() if _setting(config, name) not in allowed
        }
        if missing and getattr(parts, part.name) is not part.default:
            found[part.name] = " and ".join(
                f"{name}={' or '.join(map(repr, allowed))}" for name, allowed in part.metadata.items()
            )
    return found


def _setting(config: EngineConfig, name: str) -> object:
    return config.caches_prefixes if name == "enable_prefix_caching" else getattr(config, name)


def _check_parts(config: EngineConfig) -> None:
    unused = {} if config.parts is None else unused_parts(config, config.parts)
    if unused:
        needs = "; ".join(f"{part} needs {wanted}" for part, wanted in unused.items())
        raise ConfigError(
            f"an engine with these settings never calls some of its parts: {needs}. Change the settings, "
            "or leave these parts out"
        )
