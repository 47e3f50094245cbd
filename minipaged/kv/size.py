"""The arithmetic of KV memory: bytes per token, blocks that fit, the longest request that fits.

Pure Python without torch, so that a command can print sizes without a slow import.

`num_blocks` always includes the null block, as vLLM's `num_gpu_blocks` does. The null block (block 0)
holds no tokens, so a pool of N blocks has N − 1 blocks for requests.

Sources: PagedAttention paper, sections 1 and 3; vLLM, `v1/core/kv_cache_utils.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from minipaged.errors import ConfigError


@dataclass(frozen=True)
class KVShape:
    """The sizes that determine how many bytes one token's keys and values take.

    Attributes:
        num_layers: decoder layers. Each keeps its own keys and values.
        num_kv_heads: key/value heads per layer (fewer than query heads under GQA, one under MQA).
        head_dim: numbers in the key of one head. Its value has the same size.
        dtype_bytes: bytes per number: 2 for float16 and bfloat16, 4 for float32.

    Raises:
        ConfigError: a field is not a positive integer.

    >>> KVShape(num_layers=40, num_kv_heads=40, head_dim=128, dtype_bytes=2).bytes_per_token
    819200
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype_bytes: int

    def __post_init__(self) -> None:
        for field in fields(self):
            _at_least(field.name, getattr(self, field.name), 1)

    @property
    def bytes_per_token(self) -> int:
        """2 (K and V) × layers × KV heads × head dimension × bytes per number."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype_bytes


def bytes_per_block(shape: KVShape, block_size: int) -> int:
    """Bytes of one block: `block_size` tokens, in all layers."""
    _at_least("block_size", block_size, 1)
    return shape.bytes_per_token * block_size


def num_blocks_that_fit(memory_bytes: int, shape: KVShape, block_size: int) -> int:
    """How many whole blocks fit into `memory_bytes`, the null block included.

    `memory_bytes` is negative if weights and activations need more than the device has. Then no block
    fits, and the result is 0; `resolve_max_model_len` refuses such a pool.
    """
    return max(0, memory_bytes) // bytes_per_block(shape, block_size)


def max_model_len_that_fits(num_blocks: int, block_size: int) -> int:
    """The longest request that fits if it has the pool to itself: prompt plus output, in tokens."""
    _at_least("block_size", block_size, 1)
    return max(0, num_blocks - 1) * block_size


def blocks_needed(num_tokens: int, block_size: int) -> int:
    """Blocks that `num_tokens` tokens of one sequence take: ceil(num_tokens / block_size).

    >>> [blocks_needed(n, block_size=16) for n in (0, 1, 16, 17)]
    [0, 1, 1, 2]
    """
    if num_tokens < 0 or block_size < 1:
        raise ConfigError(f"{num_tokens} tokens in blocks of {block_size}: there is no such number of blocks")
    return -(-num_tokens // block_size)


def max_concurrency(num_blocks: int, block_size: int, max_model_len: int) -> float:
    """How many requests of `max_model_len` tokens the pool holds at once. The number is not rounded.

    This is the pool's blocks divided by the blocks that one such request needs. The null block counts,
    as in vLLM's log line, so that both programs report the same number.
    """
    _at_least("max_model_len", max_model_len, 1)
    return num_blocks / blocks_needed(max_model_len, block_size)


def log_line(num_blocks: int, block_size: int, max_model_len: int, device: str = "GPU") -> str:
    """The line that vLLM logs at start, for `device` "GPU" or "CPU".

    >>> log_line(983, block_size=16, max_model_len=2048)
    'GPU KV cache size: 15,728 tokens, Maximum concurrency for 2,048 tokens per request: 7.68x'
    """
    concurrency = max_concurrency(num_blocks, block_size, max_model_len)
    return (
        f"{device} KV cache size: {num_blocks * block_size:,} tokens, "
        f"Maximum concurrency for {max_model_len:,} tokens per request: {concurrency:.2f}x"
    )


def resolve_max_model_len(
    requested: int | Literal["auto"] | None, model_max: int, num_blocks: int, block_size: int
) -> int:
    """The `max_model_len` that an engine with this pool serves.

    Args:
        requested: a length in tokens. `None` means the model's maximum; `"auto"` or `-1` means the
            longest that fits, up to the model's maximum.
        model_max: the longest sequence that the model was trained for, in tokens.
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.

    Raises:
        ConfigError: the length is above the model's, or no request of that length fits.
    """
    fits = max_model_len_that_fits(num_blocks, block_size)
    if fits == 0:
        raise ConfigError(
            f"a pool of {_blocks(num_blocks)} holds no tokens: block 0 is the null block. "
            "Give the KV cache more memory, or set num_blocks to at least 2."
        )
    wanted, name = _wanted_length(requested, model_max, fits)
    if wanted > fits:
        raise ConfigError(
            f"{name} needs {_blocks(blocks_needed(wanted, block_size))} of {block_size} tokens, but the "
            f"pool has {_blocks(num_blocks)}, of which one is the null block. The longest that fits is "
            f"{num_blocks - 1:,} × {block_size} = {fits:,} tokens: ask for max_model_len={fits}, or 'auto', "
            "or give the KV cache more memory."
        )
    return wanted


def resolve_max_model_len_of_regions(
    requested: int | Literal["auto"] | None, model_max: int, largest_region: int
) -> int:
    """`resolve_max_model_len` for a contiguous cache, where a request must fit into one region.

    Args:
        requested: as in `resolve_max_model_len`.
        model_max: as in `resolve_max_model_len`.
        largest_region: the most slots that a region can have.

    Raises:
        ConfigError: the length is above the model's, or no region of that length fits.
    """
    wanted, name = _wanted_length(requested, model_max, largest_region)
    if largest_region < 1:
        raise ConfigError(f"{name} needs a region of slots, and this KV cache has none: give it more memory")
    if wanted > largest_region:
        raise ConfigError(
            f"{name} needs a region of {wanted:,} slots, and the largest in this KV cache has "
            f"{largest_region:,}: ask for max_model_len={largest_region}, or 'auto', or give the KV cache "
            "more memory."
        )
    return wanted


def _wanted_length(requested: int | Literal["auto"] | None, model_max: int, fits: int) -> tuple[int, str]:
    """The requested `max_model_len`, and a name for it in error messages."""
    _at_least("model_max", model_max, 1)
    if requested == "auto" or requested == -1:
        return min(fits, model_max), "max_model_len='auto'"
    if requested is None:
        return model_max, f"the model's max_model_len of {model_max:,} tokens"
    wanted, name = _at_least("max_model_len", requested, 1), f"max_model_len={requested:,}"
    if wanted > model_max:
        raise ConfigError(
            f"{name} is above the {model_max:,} tokens that the model was trained for. "
            f"Ask for at most {model_max:,}."
        )
    return wanted, name


def _blocks(count: int) -> str:
    return f"{count:,} block" if count == 1 else f"{count:,} blocks"


def _at_least(name: str, value: object, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{name} must be an integer of at least {minimum}, not {value!r}")
    return value
