"""Chapter 1, KV-size math: how large the KV cache is, and how many requests fit into it.

Memory is counted in bytes, and lengths in tokens. One *slot* holds one token's keys and values, in all
layers. Plain Python is enough here; torch is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.baseline.contiguous_breakdown import ReservedRegion
from minipaged.course import NotYet
from minipaged.course.ch01.snapshot import Snapshot
from minipaged.kv.breakdown import MemoryBreakdown


def bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int) -> int:
    """Bytes that the keys and values of one token take, in all layers together.

    Args:
        num_layers: decoder layers. Each layer keeps its own keys and values.
        num_kv_heads: key/value heads of one layer. With GQA there are fewer of them than query heads.
        head_dim: numbers in the key of one head, and in its value.
        dtype_bytes: bytes of one number: 2 for float16 and bfloat16, 4 for float32.

    >>> bytes_per_token(num_layers=2, num_kv_heads=3, head_dim=4, dtype_bytes=2)
    96
    """
    # Exercise 1.1: your code here.
    raise NotYet("1.1", "bytes_per_token")


def num_blocks_that_fit(
    device_bytes: int, utilization: float, weights_bytes: int, activation_bytes: int, bytes_per_block: int
) -> int:
    """How many whole blocks fit into a device besides the weights and the activations.

    Count every block, including block 0, the null block: it takes memory, too. (No request can use it, so
    `max_model_len_that_fits` does not count it.)

    Args:
        device_bytes: all memory of the device.
        utilization: the share of this memory that the engine may use, above 0 and at most 1.
        weights_bytes: bytes of the weights.
        activation_bytes: the most memory that one step needs for results that it does not keep.
        bytes_per_block: bytes of one block.

    Returns:
        The number of blocks; 0 if the weights and activations leave no memory.

    >>> num_blocks_that_fit(1000, 0.9, weights_bytes=500, activation_bytes=50, bytes_per_block=100)
    3
    """
    # Exercise 1.2: your code here.
    raise NotYet("1.2", "num_blocks_that_fit")


def max_model_len_that_fits(num_blocks: int, block_size: int) -> int:
    """How many tokens a request can have, prompt and output together, if it has the pool to itself.

    Block 0 is the null block: it pads block tables, and holds no request's tokens. In a pool of 0 blocks, the
    longest request has 0 tokens.

    Args:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.

    >>> max_model_len_that_fits(num_blocks=5, block_size=16)
    64
    """
    # Exercise 1.2: your code here.
    raise NotYet("1.2", "max_model_len_that_fits")


def max_concurrency(num_blocks: int, block_size: int, max_model_len: int) -> float:
    """How many requests of the maximum length the pool holds: the number in vLLM's log line.

    It is the number of blocks in the pool divided by the blocks of one such request, not rounded. As in vLLM,
    the null block counts as one of the pool's blocks.

    Args:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block. A request's last block may be partly empty.
        max_model_len: tokens of each request.

    >>> max_concurrency(num_blocks=10, block_size=16, max_model_len=60)
    2.5
    """
    # Exercise 1.3: your code here.
    raise NotYet("1.3", "max_concurrency")


def average_concurrency(num_blocks: int, block_size: int, lengths: Sequence[int]) -> float:
    """How many requests with such lengths the pool holds on average.

    It is the number of blocks in the pool divided by the blocks that one request takes *on average*.

    Args:
        num_blocks: blocks in the pool.
        block_size: tokens per block.
        lengths: tokens of some typical requests, at least one.

    >>> average_concurrency(num_blocks=9, block_size=4, lengths=[4, 5])
    6.0
    """
    # Exercise 1.3: your code here.
    raise NotYet("1.3", "average_concurrency")


def account(num_slots: int, reserved: Sequence[ReservedRegion]) -> MemoryBreakdown:
    """Count the slots of a contiguous cache by their use.

    The cache is under load: requests wait in a queue, and no gap is large enough for the next one. So `free`
    is 0, and a slot that no request holds is external fragmentation.

    Args:
        num_slots: all slots of the cache.
        reserved: the regions that running requests hold. Each has `region.num_slots` slots. `num_tokens` of
            these hold a token now, and `num_tokens_at_end` will hold one when the request ends.

    Returns:
        The five counts; their sum is `num_slots`.

    A region of 10 slots with 3 tokens now and 5 at its end, in a cache of 16:

    >>> from minipaged.baseline.region_allocator import Region
    >>> account(16, [ReservedRegion(Region(0, 10), num_tokens=3, num_tokens_at_end=5)])
    ... # doctest: +NORMALIZE_WHITESPACE
    MemoryBreakdown(token_states=3, reservation=2, internal_fragmentation=5,
                    external_fragmentation=6, free=0)
    """
    # Exercise 1.4: your code here.
    raise NotYet("1.4", "account")


def contiguous_snapshot(tokens_now: Sequence[int], num_slots: int, max_model_len: int) -> Snapshot:
    """Fill a contiguous cache, in which each request reserves the maximum length.

    Args:
        tokens_now: the queue: how many tokens each request has at this moment. Requests enter in this order,
            until the next one does not fit.
        num_slots: slots of the cache.
        max_model_len: slots that each request reserves.

    >>> contiguous_snapshot([5, 9, 2], num_slots=20, max_model_len=10)
    Snapshot(num_requests=2, num_tokens=14, num_slots=20)
    """
    # Exercise 1.5: your code here.
    raise NotYet("1.5", "contiguous_snapshot")


def paged_snapshot(tokens_now: Sequence[int], num_slots: int, block_size: int) -> Snapshot:
    """Fill a paged cache, in which each request holds only the blocks for its tokens.

    Args:
        tokens_now: the queue, as in `contiguous_snapshot`. The first request that does not fit stops it, even
            if a shorter request after it would fit.
        num_slots: slots of the cache. Only whole blocks can be used. There is no null block here.
        block_size: tokens per block.

    >>> paged_snapshot([5, 9, 2], num_slots=20, block_size=4)
    Snapshot(num_requests=2, num_tokens=14, num_slots=20)
    """
    # Exercise 1.5: your code here.
    raise NotYet("1.5", "paged_snapshot")
