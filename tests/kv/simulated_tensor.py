"""A KV cache without numbers: each slot holds the text whose keys and values would be there.

The keys and values of a position depend only on the tokens up to that position. So here each slot holds the
tuple of these tokens. Reading a sequence back through its block table shows whether attention would have
read the right keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minipaged.kv.cache import BlockCopy

Text = tuple[int, ...]


class SimulatedTensor:
    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._slots: dict[int, Text] = {}

    def copy(self, copies: Iterable[BlockCopy]) -> None:
        """All sources are read before any target is written, as in `KVCache.copy_blocks`."""
        copies = list(copies)
        read = [[self._slots.get(slot) for slot in self._block(copy.source)] for copy in copies]
        for copy, texts in zip(copies, read, strict=True):
            for slot, text in zip(self._block(copy.target), texts, strict=True):
                if text is None:
                    self._slots.pop(slot, None)
                else:
                    self._slots[slot] = text

    def write(self, block_table: Sequence[int], token_ids: Sequence[int], start: int, end: int) -> None:
        """Compute the tokens at positions `start` to `end - 1`."""
        for position in range(start, end):
            self._slots[self._slot(block_table, position)] = tuple(token_ids[: position + 1])

    def read(self, block_table: Sequence[int], length: int) -> list[Text | None]:
        """The contents of a sequence's first `length` positions."""
        return [self._slots.get(self._slot(block_table, position)) for position in range(length)]

    def read_block(self, block_id: int) -> list[Text | None]:
        return [self._slots.get(slot) for slot in self._block(block_id)]

    def _block(self, block_id: int) -> range:
        return range(block_id * self.block_size, (block_id + 1) * self.block_size)

    def _slot(self, block_table: Sequence[int], position: int) -> int:
        return block_table[position // self.block_size] * self.block_size + position % self.block_size


def texts(token_ids: Sequence[int], length: int) -> list[Text]:
    """The expected contents of a sequence's first `length` positions."""
    return [tuple(token_ids[: position + 1]) for position in range(length)]
