"""The parts of a `Replay`: a sequence, a request, and the block pool, as the events so far have made them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minipaged.choices import FinishReason
from minipaged.errors import TraceError
from minipaged.events import RequestAdded
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.trace.state import TracedStatus


@dataclass(eq=False)
class ReplayedSequence:
    """A sequence; see `SequenceState`."""

    seq_id: int
    request: ReplayedRequest
    index: int
    token_ids: list[int]
    texts: list[str] = field(default_factory=list)
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    cpu_block_ids: tuple[int, ...] = ()
    region_start: int | None = None
    finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.request.num_prompt_tokens

    @property
    def holds_memory(self) -> bool:
        """Whether it holds blocks, CPU blocks or a region."""
        return bool(self.block_ids or self.cpu_block_ids) or self.region_start is not None

    def lose_memory(self) -> None:
        """Forget the memory and the computed tokens. The caller updates the counts of the blocks."""
        self.block_ids, self.cpu_block_ids, self.region_start = [], (), None
        self.num_computed_tokens = 0


@dataclass(eq=False)
class ReplayedRequest:
    """A request, with the event that added it; see `RequestState`."""

    added: RequestAdded
    status: TracedStatus = "waiting"
    sequences: list[ReplayedSequence] = field(default_factory=list)
    num_preemptions: int = 0
    num_cached_tokens: int | None = None

    @property
    def request_id(self) -> str:
        return self.added.request_id

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.added.prompt_token_ids)

    @property
    def num_at_end(self) -> int:
        """The most tokens that a sequence computes. Its last token is sampled but never computed."""
        return self.num_prompt_tokens + self.added.max_tokens - 1


@dataclass(frozen=True)
class CachedContents:
    """The contents of a cached block."""

    block_hash: str
    parent_block_hash: str | None
    token_ids: tuple[int, ...]


class ReplayedPool:
    """The blocks, and which of them are cached.

    Args:
        num_blocks: blocks, the null block included; 0 in a layout without blocks.

    Attributes:
        ref_cnt: by block id.
        num_free: free blocks.
        cached: the cached blocks by their ids.
        evicted: free blocks that have just lost their hash, because they are handed out next.
        num_evictions: how many blocks were handed out in this way.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_evictions = 0
        self._num_blocks = num_blocks
        self.clear()

    def clear(self) -> None:
        """Free all blocks, and forget what was cached."""
        self.ref_cnt = [0] * self._num_blocks
        if self._num_blocks:
            self.ref_cnt[NULL_BLOCK] = 1
        self.num_free = max(0, self._num_blocks - 1)
        self.cached: dict[int, CachedContents] = {}
        self.evicted: set[int] = set()

    def hold(self, block_ids: Iterable[int]) -> None:
        """Add a reference to each block.

        Raises:
            TraceError: there is no such block.
        """
        for block_id in block_ids:
            if self.references(block_id) == 0:
                self.num_free -= 1
            self.ref_cnt[block_id] += 1
            if block_id in self.evicted:
                self.evicted.remove(block_id)
                self.num_evictions += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop a reference to each block. Raises as `hold` does."""
        for block_id in block_ids:
            self.ref_cnt[block_id] = self.references(block_id) - 1
            if self.ref_cnt[block_id] == 0:
                self.num_free += 1

    def uncache(self, block_id: int) -> None:
        """Record that a block has lost its hash. Raises as `hold` does."""
        self.cached.pop(block_id, None)
        if self.references(block_id) == 0:
            self.evicted.add(block_id)

    def references(self, block_id: int) -> int:
        """A block's `ref_cnt`. Raises as `hold` does."""
        if not 0 <= block_id < self._num_blocks:
            raise TraceError(f"there is no block {block_id}: the pool has blocks 0 to {self._num_blocks - 1}")
        return self.ref_cnt[block_id]
