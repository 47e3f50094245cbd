"""Chapter 1, KV-size math: how much the KV cache takes, and how many requests that leaves room for.

All amounts of memory are in bytes, all lengths in tokens. One *slot* holds one token's keys and
values, in all layers. Plain Python is enough here: no torch.
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
        num_layers: decoder layers; each keeps keys and values of its own.
        num_kv_heads: key/value heads of one layer. Under GQA these are fewer than the query heads.
        head_dim: numbers in one head's key, and in its value.
        dtype_bytes: bytes of one number: 2 for float16 and bfloat16, 4 for float32.

    >>> bytes_per_token(num_layers=2, num_kv_heads=3, head_dim=4, dtype_bytes=2)
    96
    """
    # Exercise 1.1: your code here.
    raise NotYet("1.1", "bytes_per_token")


def num_blocks_that_fit(
    device_bytes: int, utilization: float, weights_bytes: int, activation_bytes: int, bytes_per_block: int
) -> int:
    """Whole blocks that fit into a device beside the weights and the activations.

    Count all of them, also block 0, the null block: it takes memory like any other. (No request can have
    it, so `max_model_len_that_fits` leaves it out.)

    Args:
        device_bytes: all memory of the device.
        utilization: the share of it that the engine may take, above 0 and at most 1.
        weights_bytes: bytes of the weights.
        activation_bytes: the most that one step needs for everything that is not kept.
        bytes_per_block: bytes of one block.

    Returns:
        The number of blocks; 0 if the weights and activations leave nothing.

    >>> num_blocks_that_fit(1000, 0.9, weights_bytes=500, activation_bytes=50, bytes_per_block=100)
    3
    """
    # Exercise 1.2: your code here.
    raise NotYet("1.2", "num_blocks_that_fit")


def max_model_len_that_fits(num_blocks: int, block_size: int) -> int:
    """The longest request, prompt and output together, that has the whole pool to itself.

    Block 0 is the null block: it pads block tables and holds no request's tokens. A pool of no
    blocks serves a request of no tokens.

    Args:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.

    >>> max_model_len_that_fits(num_blocks=5, block_size=16)
    64
    """
    # Exercise 1.2: your code here.
    raise NotYet("1.2", "max_model_len_that_fits")


def max_concurrency(num_blocks: int, block_size: int, max_model_len: int) -> float:
    """How many requests of the greatest length the pool holds: the number in vLLM's log line.

    Blocks of the pool over blocks of one such request, as a fraction. As in vLLM the null block
    counts here as one of the pool's.

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
    """How many requests the pool holds on average, if they come with these lengths.

    Blocks of the pool over the blocks that one request takes *on average*.

    Args:
        num_blocks: blocks in the pool.
        block_size: tokens per block.
        lengths: tokens of some typical requests; at least one of them.

    >>> average_concurrency(num_blocks=9, block_size=4, lengths=[4, 5])
    6.0
    """
    # Exercise 1.3: your code here.
    raise NotYet("1.3", "average_concurrency")


def account(num_slots: int, reserved: Sequence[ReservedRegion]) -> MemoryBreakdown:
    """Say of each slot of a contiguous cache what it is good for.

    The cache is under load: a queue waits, and no gap that is left is large enough for its next
    request. So `free` is 0, and a slot that no request holds is external fragmentation.

    Args:
        num_slots: all slots of the cache.
        reserved: the regions that running requests hold. Each has `region.num_slots` slots, of which
            `num_tokens` hold a token now, and `num_tokens_at_end` will when its request ends.

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
    """Fill a contiguous cache, in which each request reserves the greatest length.

    Args:
        tokens_now: the queue: how many tokens each request has at this moment. It is served in its
            order, until the next request does not fit.
        num_slots: slots of the cache.
        max_model_len: slots that each request reserves.

    >>> contiguous_snapshot([5, 9, 2], num_slots=20, max_model_len=10)
    Snapshot(num_requests=2, num_tokens=14, num_slots=20)
    """
    # Exercise 1.5: your code here.
    raise NotYet("1.5", "contiguous_snapshot")


def paged_snapshot(tokens_now: Sequence[int], num_slots: int, block_size: int) -> Snapshot:
    """Fill a paged cache, in which each request holds the blocks that its tokens need.

    Args:
        tokens_now: the queue, as above: the first request that does not fit ends it, also if a
            shorter one behind it would fit.
        num_slots: slots of the cache. Only whole blocks can be used. There is no null block here.
        block_size: tokens per block.

    >>> paged_snapshot([5, 9, 2], num_slots=20, block_size=4)
    Snapshot(num_requests=2, num_tokens=14, num_slots=20)
    """
    # Exercise 1.5: your code here.
    raise NotYet("1.5", "paged_snapshot")
