"""Sharing blocks: the paper's `fork`, `append` and `free`, on block tables and reference counts alone.

A block that several tables name is one block with a count. Forking raises counts and moves nothing;
writing into a block that others hold too takes a copy first (paper, section 4.4 and Fig. 8).
`BlockManager` does this for whole sequences.
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
    """One copy-on-write: the contents of block `source` go to block `target`, in all layers."""

    source: int
    target: int


class Table(Protocol):
    """What is needed of a block table: a list of block ids, or a `BlockTable`."""

    def append(self, block_id: int, /) -> None: ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, block_id: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...


class Fork(Protocol):
    """The seam of `fork`."""

    def __call__(self, table: Sequence[int], ref_cnt: list[int]) -> Iterable[int]: ...


class Append(Protocol):
    """The seam of `append`."""

    def __call__(
        self, table: Table, start: int, end: int, block_size: int, pool: BlockPool
    ) -> list[BlockCopy] | None: ...


class Free(Protocol):
    """The seam of `free`."""

    def __call__(self, table: Table, ref_cnt: list[int]) -> Iterable[int]: ...


def fork(table: Sequence[int], ref_cnt: list[int]) -> list[int]:
    """A second table of the same blocks, each of which has one holder more.

    >>> ref_cnt = [1, 1, 0, 1]
    >>> fork([3, 1], ref_cnt), ref_cnt
    ([3, 1], [1, 2, 0, 2])
    """
    for block_id in table:
        ref_cnt[block_id] += 1
    return list(table)


def append(table: Table, start: int, end: int, block_size: int, pool: BlockPool) -> list[BlockCopy] | None:
    """Make the slots of the tokens at positions `start` to `end - 1` writable.

    Grows the table, and copies on write: a block that others hold too is replaced by a new one. The
    last holder of a block writes in place.

    The reference to a copied block is given up before its contents have moved. That is safe: another
    table still names it, all copies of a step are done before any of its writes, and they read all
    sources before they write any target.

    Returns:
        The copies to do before these tokens are written; `None`, with nothing changed, if the pool has
        too few free blocks.
    """
    num_blocks = blocks_needed(end, block_size)
    written = range(start // block_size, min(num_blocks, len(table)))
    shared = [i for i in written if pool.ref_cnt[table[i]] > 1]
    if len(shared) + max(0, num_blocks - len(table)) > pool.num_free:
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
    """Give up all blocks of a table, the last one first, and empty it.

    Returns:
        The blocks that nobody holds any more, in that order.

    Raises:
        InvariantError: a block of the table has no holder; nothing has changed.
    """
    block_ids = list(table)
    block_ids.reverse()
    for block_id in block_ids:
        if ref_cnt[block_id] == 0:
            raise InvariantError(f"block {block_id} was freed, but nobody holds it")
    freed = []
    for block_id in block_ids:
        ref_cnt[block_id] -= 1
        if ref_cnt[block_id] == 0:
            freed.append(block_id)
    table.clear()
    return freed
