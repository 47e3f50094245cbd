"""What each request did in each step of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from minipaged.events import EngineStarted, Event, StepExecuted, StepFinished
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest
from minipaged.trace.state import Chunk

Phase = Literal["waiting", "prefill", "decode", "idle", "preempted", "swapped"]
"""What a request did in a step.

- `"prefill"`: it computed tokens that were known before: those of the prompt, or tokens that are computed
  again after a preemption.
- `"decode"`: it computed only tokens that the step before had sampled.
- `"idle"`: it ran, but the step computed nothing for it.
"""


@dataclass(frozen=True)
class TimelineEntry:
    """One request in one step.

    Attributes:
        began, ended: when the step began and ended, in the trace's seconds.
        num_tokens: tokens that the step computed for it.
        num_output_tokens: the output tokens of all its sequences together, after the step.
        num_blocks: distinct blocks that it held while the step computed.
    """

    step: int
    began: float
    ended: float
    phase: Phase
    num_tokens: int
    num_output_tokens: int
    num_blocks: int


@dataclass(frozen=True)
class Timeline:
    """The timeline of one request. `entries` has one entry for each step from its arrival to its end."""

    request_id: str
    arrived: float
    entries: tuple[TimelineEntry, ...]


@dataclass(frozen=True)
class _Work:
    """What the planned step does for a request."""

    phase: Phase
    num_tokens: int
    num_blocks: int


def timelines(
    engine: EngineStarted, events: Iterable[Event], only: str | None = None
) -> tuple[Timeline, ...]:
    """The timelines of all requests, in the order of their arrival.

    Args:
        engine: the settings.
        events: all events after `EngineStarted`.
        only: the id of the requests to include; all requests if it is not given.
    """
    replay = Replay(engine)
    entries: defaultdict[ReplayedRequest, list[TimelineEntry]] = defaultdict(list)
    works: dict[ReplayedRequest, _Work] = {}
    for event in events:
        if isinstance(event, StepExecuted):
            works = _works(replay, only)  # the plan is final, but no result is recorded yet
        replay.apply(event)
        if isinstance(event, StepFinished) and replay.plan is not None:
            for request, work in works.items():
                num_output = sum(seq.num_output_tokens for seq in request.sequences)
                entries[request].append(
                    TimelineEntry(
                        step=event.step,
                        began=replay.plan.began,
                        ended=event.time,
                        phase=work.phase,
                        num_tokens=work.num_tokens,
                        num_output_tokens=num_output,
                        num_blocks=work.num_blocks,
                    )
                )
    return tuple(
        Timeline(request.request_id, request.added.time, tuple(entries[request]))
        for request in replay.requests
        if only in (None, request.request_id)
    )


def _works(replay: Replay, only: str | None) -> dict[ReplayedRequest, _Work]:
    chunks: defaultdict[ReplayedRequest, list[Chunk]] = defaultdict(list)
    if replay.plan is not None:
        for chunk in map(Chunk, replay.plan.seq_ids, replay.plan.starts, replay.plan.num_tokens):
            chunks[replay.sequence(chunk.seq_id).request].append(chunk)
    return {
        request: _work(replay, request, chunks[request])
        for request in replay.unfinished.values()
        if only in (None, request.request_id)
    }


def _work(replay: Replay, request: ReplayedRequest, chunks: list[Chunk]) -> _Work:
    num_blocks = len({block_id for seq in request.sequences for block_id in seq.block_ids})
    num_tokens = sum(chunk.num_tokens for chunk in chunks)
    match request.status:
        case "waiting" | "preempted" | "swapped":
            return _Work(request.status, 0, num_blocks)
    if not chunks:
        return _Work("idle", 0, num_blocks)
    sequences = [replay.sequence(chunk.seq_id) for chunk in chunks]
    is_decode = all(
        chunk.start == seq.num_tokens - 1 and seq.num_output_tokens > 0
        for chunk, seq in zip(chunks, sequences, strict=True)
    )
    return _Work("decode" if is_decode else "prefill", num_tokens, num_blocks)
