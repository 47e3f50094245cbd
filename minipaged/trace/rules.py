"""The rules of an engine's bookkeeping. `check` finds the first rule that a trace breaks.

- Blocks: free + used + null = total. The `ref_cnt` of a block is the number of tables that name it. A block
  is handed out only if it is free and not cached. No block is written while it is shared or cached.
- Memory: a table covers the tokens that are computed; requests that wait or have ended hold nothing.
- Order: the first request of a queue runs next; a step is planned, executed, and finished, in this order.
- Tokens: each sequence that is computed to its end gets a token; a block that is hit holds exactly the tokens
  of the sequence.
- The engine's own counts after each step are equal to those of the replayed state.

`block_rules.py` has the rules for single blocks, and this module has those for requests and steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from minipaged.errors import TraceError
from minipaged.events import (
    AllBlocksCleared,
    BeamsChosen,
    EngineReset,
    EngineStarted,
    Event,
    RegionFreed,
    RegionHeld,
    RegionReserved,
    RegionReturned,
    RequestAborted,
    RequestAdded,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepExecuted,
    StepFailed,
    StepFinished,
    StepPlanned,
    TokenSampled,
)
from minipaged.trace.block_rules import BlockRules, require
from minipaged.trace.region_rules import RegionRules
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest

_TAKING_IN = (TokenSampled, BeamsChosen, SequenceFinished, RequestFinished)
_BETWEEN_STEPS = (RequestAdded, RequestAborted, RequestAdmitted, RequestPreempted, RequestResumed)


def check(engine: EngineStarted, events: Iterable[Event], *, is_whole: bool) -> None:
    """Replay events, and check each of them against the rules.

    Args:
        engine: the settings.
        events: all events after `EngineStarted`.
        is_whole: whether the events go to the end of a run. Otherwise the last step may be unfinished.

    Raises:
        TraceError: the first rule that is broken, with the step and the event.
    """
    replay = Replay(engine)
    rules = _Rules(replay)
    for event in events:
        step = replay.step + 1
        try:
            rules.before(event)
            replay.apply(event)
            rules.after(event)
        except TraceError as error:
            raise TraceError(f"step {step}: {error} ({event!r:.300})") from None
    if is_whole and rules.phase != "between":
        raise TraceError(f"step {replay.step + 1} has no end")


class _Rules:
    """The checks before and after each event.

    Attributes:
        phase: `"between"` while no step is in progress, or while the next step is being planned; `"planned"`
            while the model runs; `"executed"` while the results of the step are recorded.
    """

    def __init__(self, replay: Replay) -> None:
        self.phase: Literal["between", "planned", "executed"] = "between"
        self._replay = replay
        self._blocks = BlockRules(replay)
        self._regions = RegionRules(replay)
        self._time = 0.0

    def before(self, event: Event) -> None:
        if isinstance(event, _TAKING_IN):
            require(self.phase == "executed", "the step is not executed")
        elif isinstance(event, _BETWEEN_STEPS):
            require(self.phase == "between", "a step has not ended")
        time = getattr(event, "began", getattr(event, "time", self._time))
        require(time >= self._time, f"time goes back from {self._time} to {time}")
        self._time = getattr(event, "time", self._time)
        match event:
            case EngineStarted():
                require(False, "the engine has started already")
            case RequestAdded():
                known = event.request_id in self._replay.unfinished
                require(not known, f"request {event.request_id!r} is there already")
                require(event.seq_id == len(self._replay.sequences), "sequence ids count up from 0")
                num_prompt, most = len(event.prompt_token_ids), self._replay.engine.max_model_len
                fits = num_prompt > 0 < event.max_tokens <= most - num_prompt
                require(fits, f"{num_prompt} + {event.max_tokens} tokens do not fit into {most}")
            case RequestAdmitted() | RequestResumed():
                self._check_admission(event)
            case RequestPreempted():
                status = self._replay.request(event.request_id).status
                require(status == "running", f"a request that is {status} cannot be preempted")
            case RequestFinished() | RequestAborted():
                self._check_end(event)
            case TokenSampled() | BeamsChosen() | SequenceFinished():
                self._check_tokens(event)
            case RegionReserved() | RegionHeld() | RegionReturned() | RegionFreed():
                self._regions.before(event)
            case StepPlanned():
                self._check_plan(event)
            case StepExecuted():
                require(self.phase == "planned", "no step is planned")
            case StepFinished():
                require(self.phase == "executed", "no step is executed")
            case StepFailed() | EngineReset() | AllBlocksCleared():
                pass
            case _:
                is_early = self.phase != "between" and self._blocks.is_for_planning(event)
                require(not is_early, "a step has not ended")
        self._blocks.before(event, in_results=self.phase == "executed")

    def after(self, event: Event) -> None:
        match event:
            case StepPlanned():
                self.phase = "planned"
            case StepExecuted():
                self.phase = "executed"
            case StepFinished():
                self.phase = "between"
                self._check_counts(event)
                self._blocks.check_counts()
            case StepFailed():
                self.phase = "between"
                self._blocks.check_counts()
            case EngineReset():
                self.phase = "between"
        self._blocks.after(event)

    def _check_admission(self, event: RequestAdmitted | RequestResumed) -> None:
        request = self._replay.request(event.request_id)
        first = self._first_in_line(request)
        require(request is first, f"the first request in line is {first and first.request_id!r}")
        is_new = request.num_cached_tokens is None
        require(is_new == isinstance(event, RequestAdmitted), "only a request that ran before can resume")
        cached = 0 if request.status == "swapped" else max(s.num_computed_tokens for s in request.sequences)
        require(
            event.num_cached_tokens == cached,
            f"it has {cached} computed tokens from prefix hits, not {event.num_cached_tokens}",
        )
        self._regions.check_admission(request)

    def _first_in_line(self, request: ReplayedRequest) -> ReplayedRequest | None:
        replay = self._replay
        if request.status == "swapped":
            left = [seq.seq_id for seq in request.sequences if seq.cpu_block_ids]
            require(not left, f"the blocks of sequences {left} are not swapped in")
            return replay.swapped[0]
        require(not replay.swapped, "no waiting request comes in while another one is swapped out")
        return replay.waiting[0] if replay.waiting else None

    def _check_end(self, event: RequestFinished | RequestAborted) -> None:
        request = self._replay.request(event.request_id)
        for seq in request.sequences:
            require(
                not seq.holds_memory and seq.num_computed_tokens == 0,
                f"sequence {seq.seq_id} has ended, and holds memory",
            )
        self._regions.check_end(request)
        if isinstance(event, RequestFinished):
            require(request.status == "running", f"a request that is {request.status} cannot finish")
            if not request.added.is_beam_search:
                unfinished = [seq.seq_id for seq in request.sequences if seq.finish_reason is None]
                require(not unfinished, f"sequences {unfinished} have not finished")
                made = len(request.sequences)
                require(made == request.added.num_seqs, f"it has {made} of {request.added.num_seqs} samples")

    def _check_tokens(self, event: TokenSampled | BeamsChosen | SequenceFinished) -> None:
        if isinstance(event, BeamsChosen):
            request = self._replay.request(event.request_id)
            require(request.added.is_beam_search, "it is no beam search")
            one_each = len(event.seq_ids) == len(event.token_ids) == request.added.num_seqs
            require(one_each, "not one token for each beam")
            for seq in request.sequences:
                is_kept = seq.seq_id in event.seq_ids
                require(is_kept or seq.num_computed_tokens == 0, f"dropped beam {seq.seq_id} holds memory")
                complete = seq.num_computed_tokens == seq.num_tokens
                require(not is_kept or complete, f"beam {seq.seq_id} is not computed to its end")
            return
        seq = self._replay.sequence(event.seq_id)
        require(not seq.request.added.is_beam_search, "a beam samples nothing")
        require(seq.request.status == "running", f"its request is {seq.request.status}")
        require(seq.finish_reason is None, "the sequence has finished already")
        most = seq.request.added.max_tokens
        if isinstance(event, TokenSampled):
            complete = seq.num_computed_tokens == seq.num_tokens
            require(complete, f"{seq.num_computed_tokens} of its {seq.num_tokens} tokens are computed")
            require(seq.num_output_tokens < most, f"it has its {most} output tokens already")
        elif event.finish_reason == "length":
            require(seq.num_output_tokens == most, f"it has {seq.num_output_tokens} of {most} output tokens")

    def _check_plan(self, event: StepPlanned) -> None:
        replay, engine = self._replay, self._replay.engine
        require(self.phase == "between", "the step before has not ended")
        require(event.step == replay.step + 1, f"step {event.step} cannot follow step {replay.step}")
        require(len(event.seq_ids) > 0, "the step computes nothing")
        lengths = {len(event.seq_ids), len(event.starts), len(event.num_tokens)}
        require(len(lengths) == 1, "the plan's lists differ in length")
        require(len(set(event.seq_ids)) == len(event.seq_ids), "a sequence is planned twice")
        total = sum(event.num_tokens)
        budget = engine.max_num_batched_tokens
        require(total <= budget, f"{total} tokens are over the budget of {budget}")
        for request in (*replay.waiting, *replay.swapped):
            holding = [s.seq_id for s in request.sequences if s.block_ids or s.region_start is not None]
            require(not holding, f"request {request.request_id!r} waits, but sequences {holding} hold memory")
        for seq_id, start, num_tokens in zip(event.seq_ids, event.starts, event.num_tokens, strict=True):
            seq = replay.sequence(seq_id)
            require(seq.request.status == "running", f"sequence {seq_id} is planned, but does not run")
            require(
                start == seq.num_computed_tokens,
                f"sequence {seq_id} has {seq.num_computed_tokens} computed tokens, not {start}",
            )
            end = start + num_tokens
            known = num_tokens >= 1 and end <= seq.num_tokens
            require(known, f"sequence {seq_id} has {seq.num_tokens} tokens, and not {start} + {num_tokens}")
            is_chunk = end < seq.num_tokens
            require(engine.enable_chunked_prefill or not is_chunk, "the engine computes no chunks")
            self._regions.check_covers(seq, end)

    def _check_counts(self, event: StepFinished) -> None:
        replay = self._replay
        require(replay.plan is not None and event.step == replay.plan.step, "another step was planned")
        found = {
            "num_running": len(replay.running),
            "num_waiting": len(replay.waiting),
            "num_swapped": len(replay.swapped),
            "num_free": replay.num_free,
        }
        for name, count in found.items():
            told = getattr(event, name)
            require(count == told, f"the engine has {name}={told}, and the events lead to {count}")
        for request in replay.running:
            going_on = [seq for seq in request.sequences if seq.finish_reason is None]
            computed = [seq.seq_id for seq in going_on if seq.num_computed_tokens == seq.num_tokens]
            if request.added.is_beam_search:
                require(len(computed) < len(going_on), f"beams {computed} are computed, and got no tokens")
                continue
            require(not computed, f"sequences {computed} are computed to their end, and got no token")
            at_end = [s.seq_id for s in going_on if s.num_output_tokens >= request.added.max_tokens]
            require(not at_end, f"sequences {at_end} have all their tokens, and have not finished")
