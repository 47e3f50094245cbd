"""What became of one request in each step of a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from minipaged.errors import TraceError
from minipaged.events import Event, StepExecuted, StepFinished, StepPlanned
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest

Phase = Literal["waiting", "prefill", "decode", "idle", "preempted", "swapped"]
"""What a request did in a step. `"prefill"`: it computed tokens that were known before, of the prompt, or
again after a preemption. `"decode"`: each of its sequences that were computed got one new token to compute.
`"idle"`: it ran, but the step's budget left nothing for it."""


@dataclass(frozen=True)
class TimelineEntry:
    """One request in one step.

    Attributes:
        began, ended: the step's time, in the trace's seconds.
        num_tokens: tokens that the step computed for it.
        num_output_tokens: its output tokens after the step, those of all its sequences together.
        num_blocks: distinct blocks that it held while the step computed.
    """

    step: int
    began: float
    ended: float
    phase: Phase
    num_tokens: int
    num_output_tokens: int
    num_blocks: int


def timeline(replay: Replay, events: Iterable[Event], request_id: str) -> tuple[TimelineEntry, ...]:
    """One entry for each step from a request's arrival to its end.

    Args:
        replay: the state before the events.
        events: all events of the trace.
        request_id: if several requests had the id one after another, the last of them is shown.

    Raises:
        TraceError: the trace has no request of that id.
    """
    entries: list[TimelineEntry] = []
    request: ReplayedRequest | None = None
    planned: tuple[float, Phase, int, int] | None = None
    for event in events:
        if isinstance(event, StepExecuted):
            # Now the plan is final, and nothing is computed or freed yet.
            assert replay.plan is not None
            planned = None
            if request is not None and request in replay.unfinished.values():
                planned = (replay.plan.began, *_work(replay, replay.plan, request))
        replay.apply(event)
        if replay.unfinished.get(request_id, request) is not request:
            request, planned, entries = replay.unfinished[request_id], None, []
        if isinstance(event, StepFinished) and request is not None and planned is not None:
            began, phase, num_tokens, num_blocks = planned
            num_output = sum(seq.num_output_tokens for seq in request.sequences)
            entries.append(
                TimelineEntry(event.step, began, event.time, phase, num_tokens, num_output, num_blocks)
            )
            planned = None
    if request is None:
        raise TraceError(f"the trace has no request {request_id!r}")
    return tuple(entries)


def _work(replay: Replay, plan: StepPlanned, request: ReplayedRequest) -> tuple[Phase, int, int]:
    """What a planned step does for a request: the phase, the tokens, and the blocks that it holds."""
    num_blocks = len({block_id for seq in request.sequences for block_id in seq.block_ids})
    match request.status:
        case "waiting" | "preempted" | "swapped":
            return request.status, 0, num_blocks
    own = {seq.seq_id: seq for seq in request.sequences}
    chunks = [
        (own[seq_id], start, num_tokens)
        for seq_id, start, num_tokens in zip(plan.seq_ids, plan.starts, plan.num_tokens, strict=True)
        if seq_id in own
    ]
    if not chunks:
        return "idle", 0, num_blocks
    is_decode = all(
        start == seq.num_tokens - 1 and seq.num_output_tokens > 0 for seq, start, num_tokens in chunks
    )
    return ("decode" if is_decode else "prefill"), sum(chunk[2] for chunk in chunks), num_blocks
