"""WordCache: a KV cache whose contents can be read as words. Each key and value is a word's number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class WordCache:
    """One layer, one head, and one number for each token: the number of its word.

    Attributes:
        cache: `[1, 2, num_blocks, block_size, 1, 1]`. A slot that was not written holds 0, which is shown as
            a dot.
    """

    def __init__(self, num_blocks: int, block_size: int = 4) -> None:
        self.cache = torch.zeros(1, 2, num_blocks, block_size, 1, 1)
        self._words = ["·"]

    def kv(self, *words: str) -> Tensor:
        """The keys and values of these words, `[len(words), 1, 2, 1, 1]`."""
        self._words += [word for word in words if word not in self._words]
        numbers = [float(self._words.index(word)) for word in words]
        return torch.tensor(numbers).view(-1, 1, 1, 1, 1).expand(-1, 1, 2, 1, 1)

    def write(self, table: Sequence[int], text: str) -> None:
        """Write a text, from the beginning of the sequence on."""
        size = self.cache.shape[3]
        for position, kv in enumerate(self.kv(*text.split())):
            self.cache[:, :, table[position // size], position % size] = kv

    def block(self, block_id: int) -> list[str]:
        """The words in a block."""
        return [self._words[int(number)] for number in self.cache[0, 0, block_id].flatten()]

    def read(self, table: Sequence[int], num_tokens: int) -> str:
        """The words that a sequence reads through its table."""
        return " ".join([word for block_id in table for word in self.block(block_id)][:num_tokens])
