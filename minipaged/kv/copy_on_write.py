"""Sharing blocks: the paper's `fork`, `append` and `free`, as functions of tables and reference counts.

Several tables may name one block; its reference count says how many. Forking raises counts and copies
nothing. Before a sequence writes into a block that other tables name, it gets a copy of the block (paper,
section 4.4 and Fig. 8). `BlockManager` calls these functions for whole sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from minipaged.errors import InvariantError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.size import blocks_needed


@dataclass(frozen=True)
class BlockCopy:
    """One copy-on-write: copy the contents of block `source` to block `target`, in all layers."""

    source: int
    target: int


class Table(Protocol):
    """The methods of a block table that are used here. Lists of block ids and `BlockTable` have them."""

    def append(self, block_id: int, /) -> None: ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, block_id: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...


class Fork(Protocol):
    """The signature of `fork`, for functions that replace it in the engine."""

    def __call__(self, table: Sequence[int], ref_cnt: list[int]) -> Iterable[int]: ...


class Append(Protocol):
    """The signature of `append`, for functions that replace it in the engine."""

    def __call__(
        self, table: Table, start: int, end: int, block_size: int, pool: BlockPool
    ) -> list[BlockCopy] | None: ...


class Free(Protocol):
    """The signature of `free`, for functions that replace it in the engine."""

    def __call__(self, table: Table, ref_cnt: list[int]) -> Iterable[int]: ...


def fork(table: Sequence[int], ref_cnt: list[int]) -> list[int]:
    """Make a second table of the same blocks, and raise their reference counts by one.

    >>> ref_cnt = [1, 1, 0, 1]
    >>> fork([3, 1], ref_cnt), ref_cnt
    ([3, 1], [1, 2, 0, 2])
    """
    for block_id in table:
        ref_cnt[block_id] += 1
    return list(table)


def append(table: Table, start: int, end: int, block_size: int, pool: BlockPool) -> list[BlockCopy] | None:
    """Make the slots of the tokens at positions `start` to `end - 1` writable.

    This grows the table, and copies on write: a block with more than one reference is replaced by a new
    block. A block with one reference is written in place.

    The reference to a copied block is dropped now, although its contents are copied later. That is safe for
    three reasons: another table still names the block, a step does all its copies before its writes, and the
    copies read all sources before they write any target.

    Returns:
        The copies to do before these tokens are written. `None` if the pool has too few free blocks;
        then nothing has changed.
    """
    first, num_held = start // block_size, len(table)
    if first + 1 == num_held and end <= num_held * block_size and pool.ref_cnt[table[first]] == 1:
        return []  # as in most decode steps, all tokens go to the last block, and it is not shared
    num_blocks = blocks_needed(end, block_size)
    shared = [i for i in range(first, min(num_blocks, num_held)) if pool.ref_cnt[table[i]] > 1]
    if len(shared) + max(0, num_blocks - num_held) > pool.num_free:
        return None
    copies = []
    for i in shared:
        copy = BlockCopy(source=table[i], target=pool.allocate())
        table[i] = copy.target
        pool.release(copy.source)
        copies.append(copy)
    while len(table) < num_blocks:
        table.append(pool.allocate())
    return copies


def free(table: Table, ref_cnt: list[int]) -> list[int]:
    """Drop one reference to each block of a table, from the last block to the first, and empty the table.

    Returns:
        The blocks whose reference count is now 0, in that order.

    Raises:
        InvariantError: a block of the table has reference count 0. In that case nothing has changed.
    """
    block_ids = list(table)
    block_ids.reverse()
    for block_id in block_ids:
        if ref_cnt[block_id] == 0:
            raise InvariantError(f"block {block_id} was freed, but its count is 0 already")
    freed = []
    for block_id in block_ids:
        ref_cnt[block_id] -= 1
        if ref_cnt[block_id] == 0:
            freed.append(block_id)
    table.clear()
    return freed
