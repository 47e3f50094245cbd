"""UncachedManager: no KV cache. There is nothing to divide, and always room.

Where every engine begins: each step computes a sequence from its first token again, so the n-th token
costs n tokens' work. "Computed" means that a token's successor is known, as everywhere; only the keys
and values are gone after the step.
"""

from __future__ import annotations

from collections.abc import Iterable

from minipaged.errors import InvariantError
from minipaged.kv.breakdown import MemoryBreakdown
from minipaged.kv.cache import BlockCopy
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.request import Request, Sequence


class UncachedManager(KVManager):
    """A `KVManager` without memory: every count and every share is 0, and every request fits.

    Args:
        block_size: what the engine's settings say; it means nothing here.
    """

    def __init__(self, block_size: int) -> None:
        self.num_blocks = 0
        self.block_size = block_size

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        return True

    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        """Nothing to do: the sequence has no computed tokens."""

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        return []

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Nothing to share and nothing to copy: the child only knows what the parent knows."""
        child.num_computed_tokens = num_tokens

    def free(self, seq: Sequence) -> None:
        seq.num_computed_tokens = 0

    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        """Everything fits."""

    def surely_fit(self, requests: Iterable[Request]) -> bool:
        return True

    @property
    def num_free_blocks(self) -> int:
        return 0

    @property
    def usage(self) -> float:
        return 0.0

    def breakdown(self, running: Iterable[Request], next_request: Request | None) -> MemoryBreakdown:
        return MemoryBreakdown(0, 0, 0, 0, 0)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        if any(seq.holds_memory for request in requests for seq in request.sequences):
            raise InvariantError("a sequence holds memory of a layout that has none")
