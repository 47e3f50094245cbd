"""EngineOptions: the settings of an engine as keyword arguments. `EngineConfig` documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

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

if TYPE_CHECKING:
    from minipaged.parts import Parts


class EngineOptions(TypedDict, total=False):
    """The keyword arguments of `LLM(...)`: the fields of `EngineConfig` other than `model`."""

    dtype: DType
    device: str
    block_size: int
    num_blocks: int | None
    kv_cache_memory_bytes: int | None
    gpu_memory_utilization: float
    max_model_len: int | Literal["auto"] | None
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    enable_prefix_caching: bool | None
    prefix_caching_hash_algo: HashAlgorithm
    scheduling_policy: SchedulingPolicy
    preemption_mode: PreemptionMode
    num_cpu_blocks: int | None
    attention_backend: AttentionBackend
    compiled_layers: bool | None
    enforce_eager: bool
    load_format: LoadFormat
    seed: int
    generation_config: GenerationConfigSource
    kv_layout: KVLayoutName
    reserve: ReserveRule
    region_allocator: RegionAllocatorName
    batching: Batching
    fork_mode: ForkMode
    parts: Parts | None
