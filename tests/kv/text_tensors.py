"""The real cache tensors with simulated contents: numbers in place of the tuples of `SimulatedTensor`.

Each text (all tokens up to a position, see `simulated_tensor`) gets a number. It is stored as the key, and
its negative as the value. So the real `KVCache` and `SwapCache` can execute a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from minipaged.kv.cache import BlockCopy, KVCache, write_kv
from minipaged.kv.swap import BlockSwap
from minipaged.kv.swap_cache import SwapCache
from tests.kv.simulated_tensor import Text, texts

STALE = -1
"""The key and the value of slots that no sequence may read. No text has this number."""


class TextTensors:
    def __init__(self, num_blocks: int, num_cpu_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.cache = KVCache(
            num_layers=1,
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=1,
            head_dim=1,
            dtype=torch.int64,
            device=torch.device("cpu"),
        )
        self.swap_cache = SwapCache(self.cache, num_cpu_blocks)
        self.spoil(range(1, num_blocks), range(num_cpu_blocks))
        self._numbers: dict[Text, int] = {}

    def swap(self, outs: Sequence[BlockSwap], ins: Sequence[BlockSwap]) -> None:
        """Do a step's swaps out, and then its swaps in."""
        self.swap_cache.copy_out(outs)
        self.swap_cache.copy_in(ins)

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        self.cache.copy_blocks(copies)

    def write(self, block_table: Sequence[int], token_ids: Sequence[int], start: int, end: int) -> None:
        """Compute the tokens at positions `start` to `end - 1`."""
        numbers = torch.tensor(self._expected(token_ids, end)[start:]).view(-1, 1, 1)  # [T, 1, 1]
        slots = torch.tensor(self._slots(block_table, end)[start:])  # [T]
        write_kv(self.cache.layers[0], numbers, -numbers, slots)

    def spoil(self, blocks: Iterable[int], cpu_blocks: Iterable[int]) -> None:
        """Overwrite blocks that no sequence holds, so that reading one of them is detected."""
        self.cache.data[:, :, list(blocks)] = STALE
        self.swap_cache.data[list(cpu_blocks)] = STALE

    def holds(self, block_table: Sequence[int], token_ids: Sequence[int], length: int) -> bool:
        """Whether a sequence reads its own contents through its block table."""
        return self._reads(self.cache.data, block_table, token_ids, length)

    def cpu_holds(self, cpu_block_table: Sequence[int], token_ids: Sequence[int], length: int) -> bool:
        """Whether a swapped-out sequence has its own contents in its CPU blocks."""
        return self._reads(self.swap_cache.data.movedim(0, 2), cpu_block_table, token_ids, length)

    def _reads(self, data: torch.Tensor, table: Sequence[int], token_ids: Sequence[int], length: int) -> bool:
        keys, values = data[0].flatten(1).tolist()  # each [num_slots]
        expected = self._expected(token_ids, length)
        slots = self._slots(table, length)
        return [(keys[s], values[s]) for s in slots] == [(number, -number) for number in expected]

    def _expected(self, token_ids: Sequence[int], length: int) -> list[int]:
        return [self._numbers.setdefault(text, len(self._numbers) + 2) for text in texts(token_ids, length)]

    def _slots(self, table: Sequence[int], length: int) -> list[int]:
        size = self.block_size
        return [table[position // size] * size + position % size for position in range(length)]
