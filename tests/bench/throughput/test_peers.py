"""The peers' scripts: transformers gives our tokens, and llama.cpp's batches hold the right tokens."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from minipaged.bench.throughput.contestants import available_cpus, our_engine, peer
from minipaged.bench.throughput.match import Rules
from minipaged.bench.throughput.peers.serve_runs import Engine, Job
from minipaged.bench.throughput.run import Plan, run_throughput
from tests.bench.throughput import fake_llama_cpp
from tests.bench.throughput.fake_peers import JOB, PEERS

PREFIX = list(range(40))
PROMPTS = [[*PREFIX, 7], [*PREFIX, 8, 9], [*PREFIX, 7, 1]]
MAX_TOKENS = [3, 1, 5]


def continuation(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(fake_llama_cpp.next_token(tokens))
    return tokens[len(prompt) :]


@pytest.fixture
def llama_cpp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The script's engine, which imports the stand-in instead of `llama_cpp`."""
    monkeypatch.setitem(sys.modules, "llama_cpp", fake_llama_cpp)
    monkeypatch.syspath_prepend(str(PEERS))
    fake_llama_cpp.memory.clear()
    fake_llama_cpp.decoded.clear()
    yield importlib.import_module("run_llama_cpp").LlamaCpp(Job(**cast("dict[str, Any]", JOB)))
    for name in ("run_llama_cpp", "serve_runs"):
        sys.modules.pop(name, None)


def test_llama_cpp_one_by_one_and_as_a_batch(llama_cpp: Engine) -> None:
    expected = [continuation(prompt, count) for prompt, count in zip(PROMPTS, MAX_TOKENS, strict=True)]
    assert llama_cpp.run(PROMPTS, MAX_TOKENS).outputs == expected
    first = list(fake_llama_cpp.decoded)
    # One after the other: the whole first prompt, then each request's tokens after its common prefix.
    assert first[:1] == [41]
    # As a batch: the prefix once, then the rest of all three prompts, then steps of the running requests.
    assert first[-6:] == [40, 5, 2, 2, 1, 1]
    assert sum(first) < 2 * (41 + 42)
    for _ in range(2):
        assert llama_cpp.run(PROMPTS, MAX_TOKENS).outputs == expected
        assert llama_cpp.run(PROMPTS[:1], [4]).outputs == [continuation(PROMPTS[0], 4)]


def test_llama_cpp_tries_both_ways_once(llama_cpp: Engine) -> None:
    served = llama_cpp.run(PROMPTS, MAX_TOKENS)
    tried = [name for name in served.details if name.startswith("seconds, ")]
    assert sorted(tried) == ["seconds, batch", "seconds, single stream"]
    assert served.seconds == min(served.details[name] for name in tried)
    again = llama_cpp.run(PROMPTS, MAX_TOKENS)
    assert again.details == {"way": served.details["way"]}


@pytest.mark.long
def test_transformers_and_ours_give_the_same_tokens() -> None:
    plan = Plan(
        model="tiny",
        dtype="float32",
        workloads=("W1",),
        contestants=(our_engine(1), peer("hf", 1), peer("llama.cpp", 1)),
        threads=1,
        stage=None,
        rules=Rules(repeats=1, load_limit=600, run_limit=600),
        measures_machine=False,
    )
    result = run_throughput(plan, lambda _: None)
    (workload,) = result.workloads
    ours, hf, llama_cpp = workload.entries
    assert ours.failure is hf.failure is None
    assert len(ours.runs) == len(hf.runs) == 1
    assert hf.agreement is not None
    assert hf.agreement.num_differing == 0
    assert hf.runs[0].num_computed_tokens == 256
    assert ours.runs[0].details["num_steps"] == 128
    if importlib.util.find_spec("llama_cpp") is None:
        assert llama_cpp.failure == "absent"
    assert result.contestants[0].versions is not None
    assert "torch" in result.contestants[0].versions


def test_tuned_vllm_binds_its_threads() -> None:
    tuned, plain = peer("vllm-tuned", 1), peer("vllm", 1)
    assert tuned.script == plain.script
    assert tuned.environment["VLLM_CPU_OMP_THREADS_BIND"] == str(available_cpus()[0])
    assert "VLLM_CPU_OMP_THREADS_BIND" not in plain.environment
    same = {"LD_PRELOAD", "BENCH_PRELOADED", "VLLM_CPU_OMP_THREADS_BIND"}
    assert {name: tuned.environment[name] for name in tuned.environment if name not in same} == {
        name: plain.environment[name] for name in plain.environment if name not in same
    }
    assert replace(tuned, environment={}, name="") == replace(plain, environment={}, name="")
