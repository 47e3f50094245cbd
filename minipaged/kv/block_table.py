"""Address translation: from a token's position in its sequence to its slot in the KV cache.

A block table is for a sequence what a page table is for a process. Entry i names the physical block
that holds the sequence's i-th logical block. Each sequence has its own table, a plain array (paper,
section 4.2 and Fig. 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from minipaged.kv.block_pool import NULL_BLOCK

BlockIds = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]


def translate(position: int, block_size: int) -> tuple[int, int]:
    """Split a token's position into its logical block and its offset in that block.

    >>> translate(35, block_size=16)
    (2, 3)
    """
    return position // block_size, position % block_size


class SlotMapping(Protocol):
    """The signature of `slot_mapping`: any function with this signature can replace it in the engine."""

    def __call__(self, block_ids: BlockIds, start: int, end: int, block_size: int) -> Slots: ...


def slot_mapping(block_ids: BlockIds, start: int, end: int, block_size: int) -> Slots:
    """The slots of the tokens at positions `start` to `end - 1` of one sequence.

    A slot is a token's place in the whole cache: `block_id * block_size + offset`.

    Args:
        block_ids: the sequence's block table, int32 `[num_blocks]`; covers position `end - 1`.
        start: first position.
        end: one past the last position.
        block_size: tokens per block.

    Returns:
        int64 `[end - start]`.

    >>> slot_mapping(np.array([7, 1, 3], dtype=np.int32), 2, 6, block_size=4).tolist()
    [30, 31, 4, 5]
    """
    positions = np.arange(start, end, dtype=np.int64)  # [end - start]
    blocks, offsets = np.divmod(positions, block_size)
    return block_ids[blocks].astype(np.int64) * block_size + offsets


def decode_slots(block_tables: BlockIds, positions: Positions, block_size: int) -> Slots:
    """The slots of one token of each sequence: `slot_mapping` for a decode step, without a loop.

    Args:
        block_tables: the result of `pad_block_tables`, int32 `[S, M]`.
        positions: int64 `[S]`, the position of each sequence's token.
        block_size: tokens per block.

    Returns:
        int64 `[S]`.

    Raises:
        IndexError: a position is past its sequence's table.
    """
    blocks, offsets = np.divmod(positions, block_size)  # [S] each
    block_ids = block_tables[np.arange(len(positions)), blocks].astype(np.int64)  # [S]
    if not block_ids.all():  # a table never names the null block, so a 0 is padding
        raise IndexError("a position is past its sequence's block table")
    return block_ids * block_size + offsets


class PadBlockTables(Protocol):
    """The signature of `pad_block_tables`, for functions that replace it in the engine."""

    def __call__(self, tables: Sequence[BlockIds]) -> BlockIds: ...


def pad_block_tables(tables: Sequence[BlockIds]) -> BlockIds:
    """The block tables of a step's sequences as one array. Rows are padded with the null block.

    Args:
        tables: the tables of S sequences, at least one; each int32 `[number of its blocks]`.

    Returns:
        int32 `[S, M]`, where M is the length of the longest table.

    >>> pad_block_tables([np.array([7, 1, 3], dtype=np.int32), np.array([5], dtype=np.int32)]).tolist()
    [[7, 1, 3], [5, 0, 0]]
    """
    padded = np.full((len(tables), max(map(len, tables))), NULL_BLOCK, dtype=np.int32)  # [S, M]
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded


class BlockTable:
    """The physical blocks of one sequence, in the order of its logical blocks.

    It is an int32 array that grows. Appending is amortised O(1).

    Attributes:
        ids: the block ids, int32 `[len(self)]`: a view of the array, valid until the next change. A step
            copies a table with one `memcpy`, without a loop over its blocks.
    """

    def __init__(self) -> None:
        self._array: BlockIds = np.zeros(8, dtype=np.int32)  # [capacity]
        self.ids: BlockIds = self._array[:0]

    def append(self, block_id: int) -> None:
        length = len(self.ids)
        if length == len(self._array):
            self._array = np.concatenate([self._array, np.zeros_like(self._array)])
        self._array[length] = block_id
        self.ids = self._array[: length + 1]

    def extend(self, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self.append(block_id)

    def clear(self) -> None:
        self.ids = self._array[:0]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> int:
        return self.ids.item(index)

    def __setitem__(self, index: int, block_id: int) -> None:
        self.ids[index] = block_id

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __repr__(self) -> str:
        return f"BlockTable({self.ids.tolist()})"
