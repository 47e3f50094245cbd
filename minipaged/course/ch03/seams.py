"""Chapter 3 in the engine: slots, free blocks, writing, padding, and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Protocol

import numpy as np

from minipaged.course.seams import Seam
from minipaged.kv.block_table import BlockIds, Slots


class SimpleFreeList(Protocol):
    """The free list of exercise 3.3."""

    def pop(self) -> int: ...

    def push(self, block_id: int) -> None: ...

    def __len__(self) -> int: ...


class FreeListAsQueue:
    """A `FreeQueue` for the engine's pool, which has two ends, made from a free list with one end.

    Prefix caching needs both ends of the queue and access to its middle. Here these take time in proportion
    to the length: all blocks are popped and pushed back.
    """

    def __init__(self, free_list: SimpleFreeList) -> None:
        self._free = free_list

    def pop_front(self) -> int:
        return self._free.pop()

    def push_front(self, block_id: int) -> None:
        self._free.push(block_id)

    def push_back(self, block_id: int) -> None:
        others = self._pop_all()
        self._push_all([*others, block_id])

    def remove(self, block_id: int) -> None:
        others = self._pop_all()
        others.remove(block_id)
        self._push_all(others)

    def __len__(self) -> int:
        return len(self._free)

    def __iter__(self) -> Iterator[int]:
        blocks = self._pop_all()
        self._push_all(blocks)
        return iter(blocks)

    def _pop_all(self) -> list[int]:
        """Pop all blocks, in the order in which they would be allocated."""
        return [self._free.pop() for _ in range(len(self._free))]

    def _push_all(self, blocks: list[int]) -> None:
        for block_id in reversed(blocks):
            self._free.push(block_id)


def _slots_one_by_one(code: ModuleType) -> Callable[[BlockIds, int, int, int], Slots]:
    def slot_mapping(block_ids: BlockIds, start: int, end: int, block_size: int) -> Slots:
        table = block_ids.tolist()
        return np.array([code.slot_of(table, p, block_size) for p in range(start, end)], dtype=np.int64)

    return slot_mapping


def _free_queue(code: ModuleType) -> Callable[[int], FreeListAsQueue]:
    def free_queue(num_blocks: int) -> FreeListAsQueue:
        return FreeListAsQueue(code.FreeList(range(1, num_blocks)))  # all but the null block

    return free_queue


SEAMS = (
    # Exercise 3.2 replaces this part.
    Seam("3.1", "slot_mapping", _slots_one_by_one, "slot_of, once for each position, until 3.2 is written"),
    Seam("3.2", "slot_mapping", lambda code: code.slot_mapping),
    Seam("3.3", "free_queue", _free_queue),
    Seam("3.4", "write_kv", lambda code: code.write_kv),
    Seam("3.5", "pad_block_tables", lambda code: code.pad_block_tables),
    Seam("3.5", "attention", lambda code: code.paged_attention),
)
