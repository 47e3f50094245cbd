"""UncachedManager: no KV cache. There is no memory to divide, so every request fits.

This is the simplest engine. Each step computes a sequence again from its first token, so the n-th token
costs the work of n tokens. A token still counts as computed after its step, because the token after it is
known. Only its keys and values are not kept.
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
    """A `KVManager` without memory: all its counts and fractions are 0, and every request fits.

    Args:
        block_size: the engine's setting, which has no effect here.
    """

    def __init__(self, block_size: int) -> None:
        self.num_blocks = 0
        self.block_size = block_size

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        return True

    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        """Do nothing, because the sequence has no computed tokens."""

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        return []

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Share and copy nothing. The child only takes over the number of computed tokens."""
        child.num_computed_tokens = num_tokens

    def free(self, seq: Sequence) -> None:
        seq.num_computed_tokens = 0

    def free_request(self, request: Request) -> None:
        for seq in request.sequences:
            self.free(seq)

    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        """Never raises: every request fits."""

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
            raise InvariantError("a sequence holds KV memory, but this layout has none")
