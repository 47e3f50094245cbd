"""Chapter 2, the contiguous baseline: a KV cache in which each request has one contiguous region.

One *slot* holds one token's keys and values. A `Region` consists of the slots `start` to `end - 1`. Its class
is in `minipaged/baseline/region_allocator.py`. A region cannot be changed, so make a new one. Free lists and
tensors are changed in place, as the docstrings say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.baseline.region_allocator import Region
from minipaged.course import NotYet
from minipaged.course.ch02.static_batch import StaticBatch
from minipaged.sim.lengths import RequestLengths

if TYPE_CHECKING:
    from torch import Tensor


def allocate_first_fit(free: list[Region], num_slots: int) -> int | None:
    """Take `num_slots` slots from the front of the first free region that is large enough.

    Args:
        free: the free regions, in the order of their starts. No region is empty, and no two regions touch.
            The list is changed in place, and afterwards the same rules hold.
        num_slots: slots wanted, at least 1.

    Returns:
        The first slot taken; `None` if no region is large enough. In that case `free` does not change.

    >>> free = [Region(0, 3), Region(5, 4), Region(12, 9)]
    >>> allocate_first_fit(free, 4)
    5
    >>> free
    [Region(start=0, num_slots=3), Region(start=12, num_slots=9)]
    >>> allocate_first_fit(free, 2), free[0]
    (0, Region(start=2, num_slots=1))
    >>> print(allocate_first_fit(free, 10))
    None
    """
    # Exercise 2.1: your code here.
    raise NotYet("2.1", "allocate_first_fit")


def free_first_fit(free: list[Region], region: Region) -> None:
    """Free a region, and merge it with the free regions that touch it.

    Args:
        free: the free regions, as in `allocate_first_fit`; changed in place.
        region: the region to free. It does not overlap any free region.

    >>> free = [Region(0, 3), Region(5, 4), Region(12, 9)]
    >>> free_first_fit(free, Region(3, 2))
    >>> free
    [Region(start=0, num_slots=9), Region(start=12, num_slots=9)]
    """
    # Exercise 2.1: your code here.
    raise NotYet("2.1", "free_first_fit")


def write_region(slots: Tensor, start: int, position: int, key: Tensor, value: Tensor) -> None:
    """Store the keys and values of a sequence's next Q tokens.

    Q is 1 in a decode step, and the prompt's length for a whole prompt.

    Args:
        slots: one layer's cache, `[2, num_slots, num_kv_heads, head_dim]`: keys in `slots[0]`, values in
            `slots[1]`. Written in place; all other slots stay unchanged.
        start: the first slot of the sequence's region.
        position: the position of the first of the Q tokens in the sequence, from 0.
        key: `[Q, num_kv_heads, head_dim]`.
        value: as `key`.

    >>> import torch
    >>> slots = torch.zeros(2, 8, 1, 1)
    >>> write_region(slots, start=4, position=1, key=torch.ones(2, 1, 1), value=torch.ones(2, 1, 1) * 7)
    >>> slots[0].flatten().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    >>> slots[1].flatten().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 0.0]
    """
    # Exercise 2.2: your code here.
    raise NotYet("2.2", "write_region")


def read_region(slots: Tensor, start: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """The keys and values of a sequence's tokens so far, as views of the cache, not copies.

    Args:
        slots: one layer's cache, as in `write_region`.
        start: the first slot of the sequence's region.
        num_tokens: the number of tokens written so far. The region's later slots may hold any values.

    Returns:
        Keys and values, each `[num_tokens, num_kv_heads, head_dim]`.

    >>> import torch
    >>> slots = torch.arange(16.0).view(2, 8, 1, 1)
    >>> keys, values = read_region(slots, start=4, num_tokens=3)
    >>> keys.flatten().tolist(), values.flatten().tolist()
    ([4.0, 5.0, 6.0], [12.0, 13.0, 14.0])
    """
    # Exercise 2.2: your code here.
    raise NotYet("2.2", "read_region")


def attend_region(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention of a sequence's last Q tokens to its L tokens.

    Args:
        query: `[Q, num_heads, head_dim]`. Row i belongs to position `L - Q + i`, and attends to the positions
            up to this one.
        keys: `[L, num_kv_heads, head_dim]`, positions 0 to L − 1. `num_heads` is a multiple of
            `num_kv_heads`: with `group = num_heads // num_kv_heads`, the query heads 0 to `group - 1`
            read KV head 0, the next `group` ones KV head 1, and so on.
        values: as `keys`.
        scale: multiplies the scores before the softmax.

    Returns:
        `[Q, num_heads, head_dim]`.

    A sequence of two tokens, and the query of the second one. The query is 0, so both tokens get the same
    weight:

    >>> import torch
    >>> keys = torch.tensor([3.0, 5.0]).view(2, 1, 1)
    >>> values = torch.tensor([10.0, 20.0]).view(2, 1, 1)
    >>> attend_region(torch.zeros(1, 1, 1), keys, values, scale=1.0).item()
    15.0
    """
    import torch  # imported here: it takes seconds, and the other exercises do not need it

    # Exercise 2.3: your code here.
    raise NotYet("2.3", "attend_region")


def static_batch(members: Sequence[RequestLengths]) -> StaticBatch:
    """What a static batch computes, with prompts padded to the longest, until its longest member ends.

    A row is one token of one member in one step. In the first step, each member has as many rows as the
    longest prompt has tokens. The rows of the member's own tokens are needed, and the rest are padding. This
    step gives every member its first output token. In each later step, each member has one row, for its
    newest token. The row is idle if the member has finished, and needed if not. So a member finishes after
    `num_output_tokens` steps, and its last output token is never computed.

    Args:
        members: the lengths of each member, at least one.

    Returns:
        The counts, in rows. `num_computed` counts the needed rows, without padding and idle rows. See
        `StaticBatch` in `minipaged/course/ch02/static_batch.py`.

    >>> static_batch([RequestLengths(3, 2), RequestLengths(5, 4)])
    StaticBatch(num_requests=2, num_steps=4, num_computed=12, num_padding=2, num_idle=2)
    """
    # Exercise 2.4: your code here.
    raise NotYet("2.4", "static_batch")


def serve_static(queue: Sequence[RequestLengths], batch_size: int) -> list[StaticBatch]:
    """Serve a queue in static batches: a batch begins when the last member of the one before has finished.

    Args:
        queue: requests in the order of their arrival. All have arrived.
        batch_size: members of a batch. The last batch may have fewer.

    >>> queue = [RequestLengths(1, 1), RequestLengths(1, 9), RequestLengths(1, 2)]
    >>> [batch.num_steps for batch in serve_static(queue, batch_size=2)]
    [9, 2]
    """
    # Exercise 2.4: your code here.
    raise NotYet("2.4", "serve_static")


def allocate_buddy(free: list[set[int]], num_slots: int) -> int | None:
    """Take a block of `num_slots` slots, rounded up to a power of two.

    A block of `2 ** order` slots begins at a multiple of `2 ** order`. Take the smallest free block that is
    large enough, and among equals the one with the lowest start. If it is too large, halve it until it fits.
    Each time, go on with the lower half; the upper half becomes free.

    Args:
        free: `free[order]` has the starts of all free blocks of `2 ** order` slots. Changed in place.
        num_slots: slots wanted, at least 1.

    Returns:
        The first slot taken. `None` if no block is large enough; `free` is then as it was.

    All 16 slots are free. A block of 4 is taken. Its upper neighbour of 4 and the upper half of 8 become
    free:

    >>> free = [set(), set(), set(), set(), {0}]
    >>> allocate_buddy(free, 3), free
    (0, [set(), set(), {4}, {8}, set()])
    """
    # Exercise 2.5: your code here.
    raise NotYet("2.5", "allocate_buddy")


def free_buddy(free: list[set[int]], start: int, order: int) -> None:
    """Free a block. While its buddy is a free block of the same size, merge the two.

    The *buddy* of a block is the other half of the block that it was cut from. Its start differs in one bit:
    it is `start ^ 2 ** order`.

    Args:
        free: as in `allocate_buddy`. Changed in place.
        start: the block's first slot.
        order: the block has `2 ** order` slots.

    >>> free = [set(), set(), {4}, {8}, set()]
    >>> free_buddy(free, start=0, order=2)
    >>> free
    [set(), set(), set(), set(), {0}]
    """
    # Exercise 2.5: your code here.
    raise NotYet("2.5", "free_buddy")
