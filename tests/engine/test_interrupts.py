"""Ctrl-C may come between any two lines. Afterwards the engine works, without wrong tokens or leaks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from minipaged import LLM, BeamSearchParams, SamplingParams
from minipaged.choices import ForkMode
from minipaged.kv.block_table import BlockTable
from minipaged.options import EngineOptions
from minipaged.scheduler.scheduler_output import ScheduledSequence, SchedulerOutput
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, drain, greedy, make_engine
from tests.model_pairs import Pair

if TYPE_CHECKING:
    from _typeshed import TraceFunction

PROMPTS = [[(7 * i + n) % 250 for i in range(9)] for n in (0, 0, 1)]


class InterruptAtLine:
    """Raises KeyboardInterrupt when the n-th line of the engine's own bookkeeping is reached."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def trace(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        name = frame.f_code.co_filename
        is_ours = "minipaged" in name and not any(
            part in name for part in ("/model/", "/tests/", "/sampling/")
        )
        if event == "line" and is_ours:
            self.seen += 1
            if self.seen == self.at:
                raise KeyboardInterrupt
        return self.trace if is_ours or event == "call" else None


def interrupted(at: int, run: Callable[[], object]) -> bool:
    """Run with an interrupt at the n-th line. Returns whether that line was reached."""
    tracer = InterruptAtLine(at)
    before = sys.gettrace()
    sys.settrace(tracer.trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


SETTINGS: dict[str, EngineOptions] = {
    "recompute": {"preemption_mode": "recompute"},
    "swap": {"preemption_mode": "swap"},
    "contiguous": {"kv_layout": "contiguous"},
}


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("mode", SETTINGS)
@pytest.mark.parametrize("first", range(4))
def test_generate_interrupted_anywhere(tiny: Pair, mode: str, first: int) -> None:
    options = EngineOptions(block_size=4, num_blocks=12, max_model_len=24)
    llm = LLM("tiny", **(options | SETTINGS[mode]))
    params = [greedy(6), SamplingParams(n=2, seed=1, max_tokens=6, ignore_eos=True), greedy(8)]
    hits = 0
    for at in range(40 + first * 17, 6000, 4 * 67):
        hits += interrupted(at, lambda: llm.generate(PROMPTS, params))
        assert_all_free(llm.engine)
        [output] = llm.generate([PROMPTS[0]], greedy(5))
        assert_greedy(tiny.oracle, output, 5)
    assert hits > 10


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("first", range(2))
def test_beam_search_interrupted_anywhere(tiny: Pair, first: int) -> None:
    llm = LLM("tiny", block_size=4, num_blocks=40, max_model_len=32)
    params = BeamSearchParams(beam_width=3, max_tokens=6)
    hits = 0
    for at in range(50 + first * 31, 6000, 2 * 173):
        hits += interrupted(at, lambda: llm.beam_search([PROMPTS[0]], params))
        assert_all_free(llm.engine)
    assert hits > 8


def test_steps_interrupted_anywhere_leave_an_engine_that_goes_on(tiny: Pair) -> None:
    engine = make_engine(tiny.model, block_size=4, num_blocks=14, max_model_len=24)
    hits = 0
    for at in range(30, 2600, 41):
        for number, prompt in enumerate(PROMPTS):
            engine.add_request(str(number), prompt, greedy(4))
        hits += interrupted(at, lambda: [engine.step() for _ in range(3)])
        engine.check_invariants()
        for output in drain(engine).values():
            assert_greedy(tiny.oracle, output, 4)
        assert_all_free(engine)
    assert hits > 20


def test_a_sample_interrupted_while_it_comes_back(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes when a resuming sample, whose siblings have finished, has got its first block.

    The sample must not count as its own sibling: then it would wait forever for tokens that it must compute
    itself.
    """
    engine = make_engine(tiny.model, block_size=4, num_blocks=14, max_model_len=24)
    engine.add_request("0", PROMPTS[0], greedy(6))
    engine.step()
    engine.step()
    (request,) = engine.scheduler.queues.running
    engine.manager.free(request.sequences[0])
    append = BlockTable.append

    def append_and_interrupt(table: BlockTable, block_id: int) -> None:
        append(table, block_id)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BlockTable, "append", append_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    (output,) = drain(engine, after_step=check_and_poison).values()
    assert_greedy(tiny.oracle, output, 6)
    assert_all_free(engine)


@pytest.mark.parametrize("fork_mode", ["share", "copy"])
def test_copies_of_a_step_interrupted_while_it_is_planned(
    tiny: Pair, fork_mode: ForkMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At that point the samples have new blocks without contents. They must not continue with these."""
    params = SamplingParams(n=3, seed=1, max_tokens=6, ignore_eos=True)
    expected: list[list[int]] | None = None
    add_item = SchedulerOutput.add
    for which in range(3):  # the first time, nothing is interrupted
        engine = make_engine(tiny.model, block_size=4, num_blocks=14, max_model_len=24, fork_mode=fork_mode)
        engine.add_request("0", PROMPTS[0], params)
        check_and_poison(engine)
        num_copying = 0

        def add(output: SchedulerOutput, item: ScheduledSequence, which: int = which) -> None:
            nonlocal num_copying
            num_copying += bool(item.copies)
            if item.copies and num_copying == which:
                raise KeyboardInterrupt
            add_item(output, item)

        with monkeypatch.context() as patch:
            patch.setattr(SchedulerOutput, "add", add)
            finished = {}
            while engine.has_unfinished_requests():
                with contextlib.suppress(KeyboardInterrupt):
                    finished |= {output.request_id: output for output in engine.step()}
                check_and_poison(engine)
        tokens = [sample.token_ids for sample in finished["0"].outputs]
        expected = expected or tokens
        assert tokens == expected
        assert num_copying >= which
