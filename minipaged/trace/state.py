"""TraceState: an engine's whole state after one step, rebuilt from a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minipaged.choices import FinishReason
from minipaged.kv.breakdown import MemoryBreakdown

TracedStatus = Literal["waiting", "running", "preempted", "swapped", "finished", "aborted"]
"""`"preempted"`: waiting again, without memory. `"swapped"`: waiting again, with its blocks in CPU memory."""


@dataclass(frozen=True)
class Holder:
    """Entry `index` of the block table of sequence `seq_id`."""

    seq_id: int
    index: int


@dataclass(frozen=True)
class BlockState:
    """One block of the pool.

    Attributes:
        ref_cnt: how many block tables name it; 1 for the null block.
        holders: the table entries that name the block, in the order of the sequence ids.
        block_hash: if it is cached, the first 8 bytes of its hash in hexadecimal; otherwise `None`.
        parent_block_hash: the same for the block before it; `None` for a first block.
        token_ids: the tokens in its filled slots. A cached block that is free keeps its tokens.
    """

    block_id: int
    ref_cnt: int
    holders: tuple[Holder, ...] = ()
    block_hash: str | None = None
    parent_block_hash: str | None = None
    token_ids: tuple[int, ...] = ()

    @property
    def num_filled(self) -> int:
        """The number of slots whose keys and values may still be read."""
        return len(self.token_ids)


@dataclass(frozen=True)
class RegionState:
    """A reserved region of a contiguous cache. `seq_id` is `None` while no sequence uses it."""

    start: int
    num_slots: int
    num_allocated: int
    request_id: str
    seq_id: int | None


@dataclass(frozen=True)
class SequenceState:
    """A sample or a beam of a request.

    Attributes:
        index: its number within the request.
        token_ids: prompt and output.
        text: the output's text so far; empty if the trace leaves texts out, or if the sequence is a beam.
        block_ids: its block table.
        cpu_block_ids: its CPU blocks, while it is swapped out.
        region_start: the first slot of its region, in a contiguous cache.
    """

    seq_id: int
    request_id: str
    index: int
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    num_computed_tokens: int
    block_ids: tuple[int, ...]
    cpu_block_ids: tuple[int, ...]
    region_start: int | None
    finish_reason: FinishReason | None


@dataclass(frozen=True)
class RequestState:
    """A request that has arrived.

    Attributes:
        seq_ids: its sequences, in the order in which they were made; for a beam search, its present beams,
            best first.
        num_cached_tokens: tokens found in the prefix cache when it was first admitted; `None` before.
    """

    request_id: str
    status: TracedStatus
    seq_ids: tuple[int, ...]
    max_tokens: int
    num_seqs: int
    is_beam_search: bool
    priority: int
    num_preemptions: int
    num_cached_tokens: int | None


@dataclass(frozen=True)
class Chunk:
    """The tokens of a sequence that a step computed: positions `start` to `start + num_tokens - 1`."""

    seq_id: int
    start: int
    num_tokens: int


@dataclass(frozen=True)
class TraceState:
    """The state after a step.

    Attributes:
        step: the step's number; 0 before the first step.
        time: when it ended, in the trace's seconds.
        blocks: every block by its id; empty in a layout without blocks.
        regions: the regions of a contiguous cache, by their starts.
        requests: all requests that have arrived, in the order of their arrival, including ended requests.
        sequences: the sequences of `requests` by their ids, without dropped beams.
        running: the ids of the running requests, in the order of their admission.
        waiting, swapped: the ids of the waiting and of the swapped-out requests. In each, the first id runs
            next.
        chunks: what the step computed.
        token_budget: `max_num_batched_tokens`. The step used `num_scheduled_tokens` of them.
        num_free: free blocks; in a contiguous cache, its free slots divided by the block size.
        num_preemptions, num_evictions, num_copied_blocks, num_hit_tokens: counts since the first step.
        slots: what each slot is used for.
    """

    step: int
    time: float
    blocks: tuple[BlockState, ...]
    regions: tuple[RegionState, ...]
    requests: tuple[RequestState, ...]
    sequences: dict[int, SequenceState]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    swapped: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    token_budget: int
    num_free: int
    num_preemptions: int
    num_evictions: int
    num_copied_blocks: int
    num_hit_tokens: int
    slots: MemoryBreakdown

    @property
    def num_scheduled_tokens(self) -> int:
        """The tokens that the step computed."""
        return sum(chunk.num_tokens for chunk in self.chunks)
