"""The free blocks, as a doubly linked list. All operations take O(1), at both ends and in the middle.

The middle matters because a prefix hit may take any free block out of the queue. vLLM uses such a list
too (`v1/core/kv_cache_utils.py`, `FreeKVCacheBlockQueue`), with one object for each block. Here a block
is only a number, and the links are two lists of integers, so a pool of a million blocks does not need a
million objects.

The block at the front of the queue is handed out first. If that block is cached, it is evicted.
`BlockPool.put_back` decides at which end a freed block waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

ABSENT = -1


class FreeQueue(Protocol):
    """The methods of a free queue that the pool calls. `FreeBlockQueue` documents each."""

    def pop_front(self) -> int: ...

    def push_front(self, block_id: int) -> None: ...

    def push_back(self, block_id: int) -> None: ...

    def remove(self, block_id: int) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...


class MakeFreeQueue(Protocol):
    """The signature of `full_queue`, for functions that replace it in the engine."""

    def __call__(self, num_blocks: int) -> FreeQueue: ...


class FreeBlockQueue:
    """A queue of block ids from 0 to `num_blocks - 1`. Each id is in it at most once.

    The block at the front is handed out next.
    """

    def __init__(self, num_blocks: int) -> None:
        # Index `num_blocks` is the sentinel. It stands before the first block and after the last one.
        self._end = num_blocks
        self._next = [ABSENT] * num_blocks + [num_blocks]
        self._prev = [ABSENT] * num_blocks + [num_blocks]
        self._length = 0

    def pop_front(self) -> int:
        """Take the first block.

        Raises:
            IndexError: the queue is empty.
        """
        block_id = self._next[self._end]
        if block_id == self._end:
            raise IndexError("no free block")
        self.remove(block_id)
        return block_id

    def remove(self, block_id: int) -> None:
        """Take a block out, wherever it is.

        Raises:
            KeyError: the block is not in the queue.
        """
        if block_id not in self:
            raise KeyError(f"block {block_id} is not in the free queue")
        before, after = self._prev[block_id], self._next[block_id]
        self._next[before] = after
        self._prev[after] = before
        self._next[block_id] = self._prev[block_id] = ABSENT
        self._length -= 1

    def push_back(self, block_id: int) -> None:
        """Add a block at the end, where it is reused last.

        Raises:
            KeyError: the block is in the queue already, or there is no such block.
        """
        self._insert_before(self._end, block_id)

    def push_front(self, block_id: int) -> None:
        """Add a block at the front, where it is reused next. Raises as `push_back` does."""
        self._insert_before(self._next[self._end], block_id)

    def _insert_before(self, after: int, block_id: int) -> None:
        if not 0 <= block_id < self._end:  # such an id would overwrite the sentinel's links
            raise KeyError(f"block {block_id} is none of the {self._end} blocks")
        if block_id in self:
            raise KeyError(f"block {block_id} is in the free queue already")
        before = self._prev[after]
        self._next[before] = self._prev[after] = block_id
        self._prev[block_id], self._next[block_id] = before, after
        self._length += 1

    def __contains__(self, block_id: int) -> bool:
        return 0 <= block_id < self._end and self._next[block_id] != ABSENT

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        block_id = self._next[self._end]
        while block_id != self._end:
            yield block_id
            block_id = self._next[block_id]


def full_queue(num_blocks: int) -> FreeBlockQueue:
    """The free queue of a new pool: all of its `num_blocks` blocks but block 0, in ascending order."""
    queue = FreeBlockQueue(num_blocks)
    for block_id in range(1, num_blocks):
        queue.push_back(block_id)
    return queue
