"""EngineConfig: every setting of one engine, as a value.

An engine reads its settings from here and from nowhere else, so two engines in one process never
share any. Settings that depend on the model (`max_model_len`, `num_blocks`) may stay `None`; the
engine resolves them at start and says what it chose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from minipaged.baseline.region_allocator import RegionAllocatorName
from minipaged.baseline.reserve import ReserveRule
from minipaged.config_conflicts import check_conflicts
from minipaged.errors import ConfigError
from minipaged.stages import stage_options

if TYPE_CHECKING:
    from minipaged.parts import Parts

DType = Literal["auto", "float32", "bfloat16", "float16"]
LoadFormat = Literal["auto", "dummy"]
SchedulingPolicy = Literal["fcfs", "priority", "shortest"]
PreemptionMode = Literal["recompute", "swap", "never"]
KVLayoutName = Literal["paged", "contiguous", "none"]
Batching = Literal["continuous", "static"]
ForkMode = Literal["share", "copy"]
AttentionBackend = Literal["auto", "reference", "cpu", "triton"]
HashAlgorithm = Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]


MAX_BLOCK_SIZE = 2**20
"""Far more than any model's context; larger ones only overflow."""


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
    kv_layout: KVLayoutName
    reserve: ReserveRule
    region_allocator: RegionAllocatorName
    batching: Batching
    fork_mode: ForkMode
    parts: Parts | None


@dataclass(frozen=True)
class EngineConfig:
    """All settings of an engine. Names follow vLLM's where vLLM has one.

    Attributes:
        model: `"tiny"`, `"smollm2-135m"`, a folder, a `.gguf` file, or a hub id.
        dtype: `"auto"` is float32 on a CPU and bfloat16 on a CUDA device.
        device: `"auto"` takes cuda, then mps, then cpu. Or a torch device string.
        block_size: tokens per block.
        num_blocks: blocks in the pool, the null block included. Overrides the two below.
        kv_cache_memory_bytes: memory for the KV cache, in bytes.
        gpu_memory_utilization: share of a CUDA device's memory for weights, activations and cache.
        max_model_len: longest prompt plus output of one request, in tokens. `None`: what the model
            was trained for. `"auto"` or `-1`: the longest that fits into the pool, up to that.
        max_num_seqs: most sequences that run in one step.
        max_num_batched_tokens: the token budget of one step.
        enable_chunked_prefill: whether a prompt may be computed over several steps.
        enable_prefix_caching: whether full blocks stay findable by their hash. `None`: where blocks are
            shared, with `kv_layout="paged"` and `fork_mode="share"`; see `caches_prefixes`.
        prefix_caching_hash_algo: `sha256`, `sha256_cbor`, `xxhash` or `xxhash_cbor`.
        scheduling_policy: `"fcfs"`, `"priority"` (a smaller number is more urgent), or `"shortest"`
            (the shortest prompt first, with ageing). See `minipaged/scheduler/policy.py`.
        preemption_mode: how a preempted request comes back: `"recompute"` its tokens, or `"swap"` its
            blocks to CPU memory (and recompute where that is full). `"never"` admits a request only if
            it and all running ones surely fit at their greatest lengths, so that none is preempted.
        num_cpu_blocks: blocks of CPU memory for swapping; `None`: as many as the pool has, which is
            always enough. Only with `preemption_mode="swap"`.
        attention_backend: `"reference"`, `"cpu"`, `"triton"`, or `"auto"`: `cpu` on a CPU, `triton` on
            cuda, else `reference`. `triton` on a CPU runs under Triton's interpreter: to learn and to
            test, not to be fast.
        compiled_layers: whether a model on a CPU runs in compiled code (`minipaged/cpu/`), or in PyTorch, as
            it is read in `minipaged/model/`. `None`: compiled with the attention backend `cpu`, if the
            compiled code computes this model and is fast on this processor; in PyTorch with `reference`,
            and so at the stages 1 to 4.
        enforce_eager: on a CUDA device with the backend `triton`, decode steps replay CUDA graphs, which
            are captured when the engine is made; on a CPU with compiled layers and the backend `cpu`, the
            calls of a decode step are recorded once. `True` turns both off. See
            `minipaged/runner/decode_steps.py`.
        load_format: `"dummy"` fills the model's real shape with random weights.
        seed: seeds the dummy weights, and the sampling of requests that bring no seed.
        kv_layout: `"paged"`: blocks, on demand. `"contiguous"`: one region for each sequence, reserved
            for its whole life when its request is admitted, so that nobody is ever preempted.
            `"none"`: nothing is kept, and each step computes a sequence from its beginning; the
            settings of the pool have no effect then.
        reserve: slots of a region, `"max"`, `"pow2"` or `"oracle"`; see `minipaged/baseline/reserve.py`.
            Only with `kv_layout="contiguous"`.
        region_allocator: who divides the slots, `"first_fit"` or `"buddy"`. Only with
            `kv_layout="contiguous"`.
        batching: `"continuous"`: requests join and leave the batch in any step. `"static"`: a batch is
            filled from the queue and runs until its longest member ends; then comes the next. The
            real thing also pads all members to one length. A step of this engine is ragged and
            computes no padding, so it is a kinder baseline than its name says.
        fork_mode: whether samples and beams `"share"` blocks and copy on write, or each gets a `"copy"`
            of all blocks before it goes on. In the other layouts there is nothing to share.
        parts: other implementations for the engine's seams; see `minipaged.parts`.

    Raises:
        ConfigError: a value out of its range, or two that contradict each other.
    """

    model: str = "tiny"
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
    kv_layout: KVLayoutName = "paged"
    reserve: ReserveRule = "max"
    region_allocator: RegionAllocatorName = "first_fit"
    batching: Batching = "continuous"
    fork_mode: ForkMode = "share"
    parts: Parts | None = field(default=None, repr=False)

    @classmethod
    def at_stage(cls, stage: int, model: str = "tiny", **options: Unpack[EngineOptions]) -> EngineConfig:
        """The engine as it is after a chapter of the course; see `minipaged/stages.py`.

        Args:
            stage: 1 to 8.
            model: as in `EngineConfig`.
            options: settings that go before those of the stage.

        Raises:
            ConfigError: no such stage, or an option that contradicts it.
        """
        return cls(model=model, **(stage_options(stage) | options))

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ConfigError(f"model must be a name or a path, not {self.model!r}")
        _one_of("dtype", self.dtype, get_args(DType))
        _one_of("load_format", self.load_format, get_args(LoadFormat))
        _one_of("scheduling_policy", self.scheduling_policy, get_args(SchedulingPolicy))
        _one_of("preemption_mode", self.preemption_mode, get_args(PreemptionMode))
        if self.num_cpu_blocks is not None:
            _at_least("num_cpu_blocks", self.num_cpu_blocks, 0)
            if self.preemption_mode != "swap":
                raise ConfigError("num_cpu_blocks is memory for swapping: set preemption_mode='swap' as well")
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
        check_conflicts(self)

    @property
    def caches_prefixes(self) -> bool:
        """Whether prefix caching is on, `enable_prefix_caching` being `True` or left to the layout."""
        if self.enable_prefix_caching is None:
            return self.kv_layout == "paged" and self.fork_mode == "share"
        return self.enable_prefix_caching


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
