"""Two threads that use one engine, and an engine after a fork: our error, and never a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest
import torch

from minipaged import LLM, BeamSearchParams, LLMEngine
from minipaged.engine.outputs import RequestOutput
from minipaged.engine.stats import EngineStats
from minipaged.errors import EngineBusyError
from tests.engine.driving import assert_all_free, assert_greedy, drain, greedy, make_engine
from tests.engine.test_interrupts import interrupted
from tests.model_pairs import Pair

PROMPT = [5, 6, 7, 8]
Result = TypeVar("Result")
LONG = 60.0
"""Seconds. A test that waits this long has failed."""


@pytest.fixture
def llm() -> LLM:
    return LLM("tiny", device="cpu", num_blocks=80)


@contextmanager
def another_thread(work: Callable[[], Result]) -> Iterator[Future[Result]]:
    """Runs `work` in another thread during the block, and waits for it at the end."""
    with ThreadPoolExecutor(1, "the other") as threads:
        yield threads.submit(work)


class Gate:
    """Stops the first thread that arrives, until the gate is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(LONG)


@contextmanager
def generating(llm: LLM, gate: Gate) -> Iterator[Future[list[RequestOutput]]]:
    """During the block, another thread generates and waits at the gate."""
    with another_thread(lambda: llm.generate(PROMPT, greedy(5), use_tqdm=False)) as work:
        try:
            assert gate.reached.wait(LONG)
            yield work
        finally:
            gate.opened.set()


CALLS: dict[str, Callable[[LLM], object]] = {
    "generate": lambda llm: llm.generate(PROMPT, greedy(5)),
    "beam_search": lambda llm: llm.beam_search(PROMPT, BeamSearchParams(2, 3)),
    "add_request": lambda llm: llm.engine.add_request("mine", PROMPT, greedy(5)),
    "step": lambda llm: llm.engine.step(),
    "advance": lambda llm: llm.engine.advance(),
    "abort_request": lambda llm: llm.engine.abort_request("generate-0"),
    "abort_all": lambda llm: llm.engine.abort_all(),
    "reset_prefix_cache": lambda llm: llm.engine.reset_prefix_cache(),
    "memory_breakdown": lambda llm: llm.memory_breakdown(),
    "check_invariants": lambda llm: llm.engine.check_invariants(),
}


@pytest.fixture(params=["within a step", "between two steps"])
def gate(request: pytest.FixtureRequest, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The place where the generating thread stops."""
    gate = Gate()
    if request.param == "within a step":
        real = llm.engine.model.decoder.forward

        def forward(*args: object, **kwargs: object) -> torch.Tensor:
            gate.wait()
            return real(*args, **kwargs)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(llm.engine.model.decoder, "forward", forward)
    else:

        def stats() -> EngineStats:
            if (
                threading.current_thread() is not threading.main_thread()
                and LLMEngine.stats(llm.engine).num_steps
            ):
                gate.wait()
            return LLMEngine.stats(llm.engine)

        monkeypatch.setattr(llm.engine, "stats", stats)
    return gate


def test_other_threads_are_refused_and_change_nothing(llm: LLM, gate: Gate, tiny: Pair) -> None:
    with generating(llm, gate) as work:
        for name, call in CALLS.items():
            with pytest.raises(EngineBusyError, match=r"in use by another thread \(the other_0\)"):
                call(llm)
            assert llm.engine.unfinished_request_ids() == ["generate-0"], name
        assert llm.engine.has_unfinished_requests()
        assert llm.engine.stats().num_running == 1
    [output] = work.result()
    assert_greedy(tiny.oracle, output, 5)
    assert_all_free(llm.engine)
    for call in CALLS.values():
        call(llm)
        llm.engine.abort_all()


def test_the_thread_itself_may_call_from_within(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps, as an observer would call it."""

    def stats() -> EngineStats:
        found = LLMEngine.stats(llm.engine)
        if found.num_steps == 2:
            llm.engine.reset_prefix_cache()
            llm.engine.add_request("mine", PROMPT, greedy(2))
            assert llm.engine.abort_request("mine") is not None
            llm.engine.check_invariants()
        return found

    monkeypatch.setattr(llm.engine, "stats", stats)
    [output] = llm.generate(PROMPT, greedy(5))
    assert len(output.outputs[0].token_ids) == 5


def test_threads_may_take_turns(tiny: Pair) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    engine.add_request("0", PROMPT, greedy(6))
    outputs: list[RequestOutput] = []
    while engine.has_unfinished_requests():
        with another_thread(engine.step) as work:
            outputs += work.result(LONG)
        outputs += engine.step()
    assert_greedy(tiny.oracle, outputs[-1], 6)


def test_many_calls_at_once(tiny: Pair) -> None:
    """Each request is either served correctly or refused."""
    llm = LLM("tiny", device="cpu", num_blocks=80)
    [expected] = llm.generate(PROMPT, greedy(4))
    begin = threading.Barrier(4)

    def work() -> int:
        begin.wait(LONG)
        served = 0
        for _ in range(15):
            try:
                [output] = llm.generate(PROMPT, greedy(4), use_tqdm=False)
            except EngineBusyError:
                continue
            assert output.outputs[0].token_ids == expected.outputs[0].token_ids
            served += 1
        return served

    with ThreadPoolExecutor(4) as threads:
        works = [threads.submit(work) for _ in range(4)]
    assert sum(one.result(LONG) for one in works) >= 1
    assert_all_free(llm.engine)


def test_ctrl_c_at_any_line_lets_other_threads_in(tiny: Pair) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    hits = 0
    for at in range(1, 60):
        hits += interrupted(at, lambda: engine.abort_request("nobody's"))
        with another_thread(engine.reset_prefix_cache) as work:
            work.result(LONG)
        assert_all_free(engine)
    assert 10 < hits < 59, "each line of a whole call was tried"


def test_an_error_lets_other_threads_in(tiny: Pair) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    with pytest.raises(TypeError):
        engine.abort_request()  # pyright: ignore[reportCallIssue]
    with another_thread(lambda: engine.add_request("0", PROMPT, greedy(2))) as work:
        work.result(LONG)
    assert len(drain(engine)) == 1


FORKING = """
import json, multiprocessing, os, signal, sys
import torch
from minipaged import LLM, ForkedProcessError, SamplingParams

torch.set_num_threads(2)
params = SamplingParams(temperature=0, max_tokens=4)
ends = {}

def text(llm):
    return llm.generate("Once upon", params)[0].outputs[0].text

def in_child(work):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends a process that hangs
        try:
            sender.send(work())
        except ForkedProcessError as error:
            sender.send(str(error))
        finally:
            os._exit(0)
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return "it hung"
    finally:
        os.waitpid(pid, 0)

def with_one_thread():
    torch.set_num_threads(1)
    return [text(llm), text(LLM("tiny", num_blocks=80))]

def make():
    return text(LLM("tiny", num_blocks=80))

ends["before any"] = in_child(make)
llm = LLM("tiny", num_blocks=80)
ends["not yet used"] = in_child(lambda: text(llm))
ends["parent"] = text(llm)
ends["same"] = in_child(lambda: text(llm))
ends["new"] = in_child(make)
ends["add"] = in_child(lambda: llm.engine.add_request("0", "Once"))
ends["one thread"] = in_child(with_one_thread)
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        ends["pool"] = pool.apply_async(make).get(60)
    except ForkedProcessError as error:
        ends["pool"] = str(error)
ends["parent again"] = text(llm)
print(json.dumps(ends))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_after_a_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    ends = json.loads(done.stdout)
    text = ends["parent"]
    assert text
    assert ends["before any"] == ends["parent again"] == text
    assert ends["one thread"] == [text, text]
    for refused in ("not yet used", "same", "new", "add", "pool"):
        assert "forked from one that has made an engine" in ends[refused], refused
        assert "get_context('spawn')" in ends[refused]
