"""An engine uses as many threads as its work needs, however it is started."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from minipaged import LLM, BeamSearchParams, EngineConfig, LLMEngine, SamplingParams
from minipaged.cli.main import main
from minipaged.engine import threads
from minipaged.engine.threads import SMALL_MODEL, num_threads, threads_worth
from minipaged.runner.model_runner import ModelRunner, SequenceResult
from minipaged.scheduler.scheduler_output import SchedulerOutput
from tests.oracle import make_model
from tests.torch_threads import needs_openmp, torch_threads, torchs_own_threads

pytestmark = needs_openmp
FOUR_TOKENS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of each step."""
    numbers: list[int] = []
    execute = ModelRunner.execute

    def counted(runner: ModelRunner, output: SchedulerOutput) -> list[SequenceResult]:
        numbers.append(torch.get_num_threads())
        return execute(runner, output)

    monkeypatch.setattr(ModelRunner, "execute", counted)
    return numbers


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "usable_cpus", lambda: 8)
    with torchs_own_threads(3):
        yield
        assert torch.get_num_threads() == 3


def tiny(**options: int) -> LLM:
    return LLM("tiny", device="cpu", num_blocks=80, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("three_threads")
def test_tiny_takes_one_however_it_is_started(seen: list[int]) -> None:
    llm = tiny()
    llm.generate("Once", FOUR_TOKENS)
    llm.beam_search("Once", BeamSearchParams(beam_width=2, max_tokens=3))
    llm.engine.add_request("a", "Once", FOUR_TOKENS)
    while llm.engine.has_unfinished_requests():
        llm.engine.step()
    assert main(["generate", "Once", "--max-tokens", "4", "--num-blocks", "80"]) == 0
    assert set(seen) == {1}
    assert len(seen) > 10
    assert num_threads(llm.engine.model.decoder) == 1


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("stage", [1, 2, 4, 8])
def test_at_every_stage(seen: list[int], stage: int) -> None:
    engine = LLMEngine(EngineConfig.at_stage(stage, "tiny", device="cpu", num_blocks=80))
    engine.add_request("a", [1, 2, 3], FOUR_TOKENS)
    while engine.has_unfinished_requests():
        engine.step()
    assert set(seen) == {1}


@pytest.mark.usefixtures("three_threads")
def test_a_large_model_takes_what_there_is(
    seen: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "SMALL_MODEL", 1)
    llm = LLM(str(make_model(tmp_path / "m")), device="cpu", num_blocks=80)
    llm.generate({"prompt_token_ids": [1, 2]}, FOUR_TOKENS)
    assert set(seen) == {3}


@pytest.mark.usefixtures("three_threads")
def test_no_more_than_the_process_may_use(
    seen: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "SMALL_MODEL", 1)
    monkeypatch.setattr(threads, "usable_cpus", lambda: 2)
    llm = LLM(str(make_model(tmp_path / "m")), device="cpu", num_blocks=80)
    llm.generate({"prompt_token_ids": [1, 2]}, FOUR_TOKENS)
    assert set(seen) == {2}


@pytest.mark.parametrize("limit", [1, SMALL_MODEL])
def test_what_the_user_says_wins(seen: list[int], monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(threads, "SMALL_MODEL", limit)
    monkeypatch.setattr(threads, "usable_cpus", lambda: 1)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    llm = tiny()
    with torch_threads(2):
        llm.generate("Once", FOUR_TOKENS)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with torchs_own_threads(3):
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        llm.generate("Once", FOUR_TOKENS)
    assert seen == [2] * 4 + [3] * 4


def test_the_size_decides() -> None:
    small = nn.Linear(SMALL_MODEL - 1, 1, bias=False, device="meta")
    large = nn.Linear(SMALL_MODEL, 1, bias=False, device="meta")
    assert threads_worth(small) == 1
    assert threads_worth(large) == threads.usable_cpus()


@pytest.mark.usefixtures("three_threads")
def test_two_engines_side_by_side_keep_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int]
) -> None:
    """Two engines in two threads, with a step of one during a step of the other."""
    small = tiny().engine
    monkeypatch.setattr(threads, "SMALL_MODEL", 1)
    large = LLM(str(make_model(tmp_path / "m")), device="cpu", num_blocks=80).engine
    for engine in (small, large):
        engine.add_request("a", [1, 2, 3], FOUR_TOKENS)
    counted = ModelRunner.execute
    in_small, done = threading.Event(), threading.Event()
    of_large: list[int] = []

    def nested(runner: ModelRunner, output: SchedulerOutput) -> list[SequenceResult]:
        if threading.current_thread() is not threading.main_thread():
            of_large.append(torch.get_num_threads())
            return counted(runner, output)
        in_small.set()
        assert done.wait(60)
        results = counted(runner, output)
        assert torch.get_num_threads() == 1
        return results

    def run_large() -> None:
        with torchs_own_threads(3):
            in_small.wait(60)
            large.step()
            of_large.append(torch.get_num_threads())
        done.set()

    monkeypatch.setattr(ModelRunner, "execute", nested)
    thread = threading.Thread(target=run_large)
    thread.start()
    small.step()
    thread.join()
    assert of_large == [3, 3]
    assert sorted(seen) == [1, 3]
