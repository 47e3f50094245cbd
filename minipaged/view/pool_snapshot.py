"""PoolSnapshot: the pool and the queues between two steps, as a value.

Views, tests and plots read a snapshot instead of the engine. The snapshot does not change when the engine
runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.request import Request, RequestStatus, Sequence

if TYPE_CHECKING:
    from minipaged.engine.llm_engine import LLMEngine

BlockState = Literal["null", "free", "cached", "used"]


@dataclass(frozen=True)
class SequenceKey:
    """Identifies a sequence: its request's id, and its number among the request's samples."""

    request_id: str
    index: int = 0


@dataclass(frozen=True)
class BlockSnapshot:
    """One physical block.

    Attributes:
        block_id: the block's number.
        state: `"null"` for the null block; `"free"`; `"cached"` for a free block whose contents can still be
            found by their hash; or `"used"`.
        holders: the running sequences whose block tables contain the block, in the order of the queue. Only
            used blocks have holders.
        num_filled: number of slots with keys and values that may still be read.
    """

    block_id: int
    state: BlockState
    holders: tuple[SequenceKey, ...] = ()
    num_filled: int = 0

    @property
    def is_shared(self) -> bool:
        return len(self.holders) > 1


@dataclass(frozen=True)
class SequenceSnapshot:
    """One unfinished sequence.

    Attributes:
        num_prompt_tokens, num_tokens, num_computed_tokens: as in `Sequence`.
        most_tokens: number of prompt and output tokens if the sequence reaches `max_tokens`.
        block_ids: the sequence's block table.
    """

    key: SequenceKey
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int
    most_tokens: int
    block_ids: tuple[int, ...]

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def most_output_tokens(self) -> int:
        return self.most_tokens - self.num_prompt_tokens


@dataclass(frozen=True)
class RequestSnapshot:
    """One unfinished request, with its unfinished sequences."""

    request_id: str
    status: RequestStatus
    num_preemptions: int
    sequences: tuple[SequenceSnapshot, ...]


@dataclass(frozen=True)
class PoolSnapshot:
    """The pool and the queues at one moment.

    Attributes:
        block_size: tokens per block.
        blocks: every block of the pool, by id; block 0 is the null block.
        running: the running requests, in the order in which they are served.
        waiting: the waiting queue. The first request is the next to be admitted.
        num_steps, num_preemptions, generation_tokens, prefix_cache_hits: as in `EngineStats`.
    """

    block_size: int
    blocks: tuple[BlockSnapshot, ...]
    running: tuple[RequestSnapshot, ...]
    waiting: tuple[RequestSnapshot, ...]
    num_steps: int
    num_preemptions: int
    generation_tokens: int
    prefix_cache_hits: int

    @property
    def num_usable(self) -> int:
        """All blocks but the null block."""
        return len(self.blocks) - 1

    @cached_property
    def num_used(self) -> int:
        return self._count("used")

    @cached_property
    def num_cached(self) -> int:
        """Free blocks that can still be found by their hash."""
        return self._count("cached")

    @cached_property
    def num_free(self) -> int:
        """Free blocks without cached contents."""
        return self._count("free")

    @cached_property
    def num_shared(self) -> int:
        return sum(block.is_shared for block in self.blocks)

    @cached_property
    def running_sequences(self) -> tuple[SequenceSnapshot, ...]:
        return tuple(seq for request in self.running for seq in request.sequences)

    @cached_property
    def num_unused_slots(self) -> int:
        """The number of slots in used blocks that hold no token.

        All are in sequences' last blocks. They are the waste of paging.
        """
        return sum(self.block_size - block.num_filled for block in self.blocks if block.state == "used")

    def _count(self, state: BlockState) -> int:
        return sum(block.state == state for block in self.blocks)


def take_snapshot(engine: LLMEngine) -> PoolSnapshot:
    """A snapshot of the engine's pool and queues. Takes O(blocks in the pool + tokens in block tables)."""
    scheduler, manager = engine.scheduler, engine.manager
    running = tuple(_request(request) for request in scheduler.queues.running)
    waiting = tuple(_request(request) for request in scheduler.queues.waiting)
    stats = engine.stats()
    return PoolSnapshot(
        block_size=manager.block_size,
        blocks=_blocks(engine, running),
        running=running,
        waiting=waiting,
        num_steps=stats.num_steps,
        num_preemptions=stats.num_preemptions,
        generation_tokens=stats.generation_tokens,
        prefix_cache_hits=stats.prefix_cache_hits,
    )


def _request(request: Request) -> RequestSnapshot:
    return RequestSnapshot(
        request.request_id,
        request.status,
        request.num_preemptions,
        tuple(_sequence(request, seq) for seq in request.unfinished),
    )


def _sequence(request: Request, seq: Sequence) -> SequenceSnapshot:
    return SequenceSnapshot(
        key=SequenceKey(request.request_id, seq.index),
        num_prompt_tokens=seq.num_prompt_tokens,
        num_tokens=seq.num_tokens,
        num_computed_tokens=seq.num_computed_tokens,
        most_tokens=seq.num_prompt_tokens + request.max_tokens,
        block_ids=tuple(seq.block_table),
    )


def _blocks(engine: LLMEngine, running: tuple[RequestSnapshot, ...]) -> tuple[BlockSnapshot, ...]:
    pool, block_size = engine.manager.pool, engine.manager.block_size
    holders: dict[int, list[SequenceKey]] = {}
    filled: dict[int, int] = {}
    for seq in (seq for request in running for seq in request.sequences):
        for i, block_id in enumerate(seq.block_ids):
            holders.setdefault(block_id, []).append(seq.key)
            here = min(block_size, max(0, seq.num_computed_tokens - i * block_size))
            # Holders of a shared block may have computed different numbers of its tokens.
            filled[block_id] = max(filled.get(block_id, 0), here)
    blocks: list[BlockSnapshot] = []
    for block_id in range(pool.num_blocks):
        if block_id == NULL_BLOCK:
            blocks.append(BlockSnapshot(block_id, "null"))
        elif pool.ref_cnt[block_id] > 0:
            named = tuple(holders.get(block_id, ()))
            blocks.append(BlockSnapshot(block_id, "used", named, filled.get(block_id, 0)))
        elif pool.is_cached(block_id):
            # Only full blocks are cached.
            blocks.append(BlockSnapshot(block_id, "cached", num_filled=block_size))
        else:
            blocks.append(BlockSnapshot(block_id, "free"))
    return tuple(blocks)
