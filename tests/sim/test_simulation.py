"""The simulation makes the engine's decisions, step by step; nothing is lost; limits that one can compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged import EngineConfig, LLMEngine, SamplingParams
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.errors import RequestTooLargeError
from minipaged.events import Event
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.options import EngineOptions
from minipaged.sim.lengths import SHAREGPT
from minipaged.sim.run import simulate
from minipaged.sim.simulation import Served, Simulation, prompt_token_ids
from minipaged.sim.step_time import StepLoad
from minipaged.sim.timed_request import TimedRequest, poisson, stream
from minipaged.trace import Trace
from tests.long_tests import examples

BLOCK_SIZE = 4


def one_second(load: StepLoad) -> float:
    return 1.0


def plan(num_blocks: int, max_model_len: int = 64, block_size: int = BLOCK_SIZE) -> MemoryPlan:
    return MemoryPlan(num_blocks, block_size, max_model_len, 1, num_blocks - 1, "CPU")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))


SYSTEMS = {
    "paged, a small pool": EngineOptions(num_blocks=24, enable_prefix_caching=False),
    "prefix cache": EngineOptions(num_blocks=24),
    "swapping": EngineOptions(num_blocks=24, enable_prefix_caching=False, preemption_mode="swap"),
    "no preemption": EngineOptions(num_blocks=24, enable_prefix_caching=False, preemption_mode="never"),
    "chunks of 5 tokens": EngineOptions(num_blocks=24, max_num_batched_tokens=5),
    "few sequences": EngineOptions(num_blocks=200, max_num_seqs=3),
    "copied forks": EngineOptions(num_blocks=40, fork_mode="copy"),
    "orca max": EngineOptions(num_blocks=48, kv_layout="contiguous", region_allocator="buddy"),
    "orca pow2": EngineOptions(
        num_blocks=49, kv_layout="contiguous", region_allocator="buddy", reserve="pow2"
    ),
    "orca oracle": EngineOptions(
        num_blocks=49, kv_layout="contiguous", region_allocator="buddy", reserve="oracle"
    ),
    "static": EngineOptions(num_blocks=24, batching="static", preemption_mode="never"),
}


def some_requests(seed: int, count: int, most_samples: int, num_prefix_tokens: int) -> list[TimedRequest]:
    """Requests that come at whole seconds, so that it is clear before which step of a second each comes."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.integers(0, 4, count))
    return [
        TimedRequest(
            arrival=float(arrival),
            num_prompt_tokens=num_prefix_tokens + int(rng.integers(1, 14)),
            num_output_tokens=int(rng.integers(1, 20)),
            num_samples=int(rng.integers(1, most_samples + 1)),
            num_prefix_tokens=num_prefix_tokens,
        )
        for arrival in arrivals
    ]


def both_step_by_step(
    engine: LLMEngine, simulation: Simulation, requests: list[TimedRequest]
) -> Iterator[None]:
    """Serve requests in a real engine and in the simulation, with one step for each second."""
    coming, step = list(requests), 0
    while coming or engine.has_unfinished_requests():
        while coming and coming[0].arrival <= step:
            timed = coming.pop(0)
            number = simulation.num_arrivals
            params = SamplingParams(
                n=timed.num_samples, max_tokens=timed.num_output_tokens, ignore_eos=True, seed=number
            )
            engine.add_request(str(number), prompt_token_ids(timed, number), params)
            simulation.add(timed)
        assert simulation.has_unfinished_requests == engine.has_unfinished_requests()
        if engine.has_unfinished_requests():
            engine.step()
            simulation.step()
            yield
        step += 1


@pytest.mark.long(keep=22)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("num_prefix_tokens", [0, 9])
@pytest.mark.parametrize("most_samples", [1, 3])
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_step_is_that_of_the_real_engine(
    name: str, most_samples: int, num_prefix_tokens: int, seed: int, model: LoadedModel
) -> None:
    config = EngineConfig(**(SYSTEMS[name] | EngineOptions(block_size=BLOCK_SIZE, max_model_len=48)))
    engine = LLMEngine(config, model)
    simulation = Simulation(config, engine.memory_plan, one_second)
    requests = some_requests(seed, 14, most_samples, num_prefix_tokens)
    for _ in both_step_by_step(engine, simulation, requests):
        stats, queues = engine.stats(), simulation.scheduler.queues
        counts = simulation.scheduler.counts
        assert (
            simulation.manager.num_free_blocks,
            simulation.manager.usage,
            len(queues.running),
            simulation.num_waiting,
            counts.preemptions,
            counts.swapped_blocks,
            counts.prefix_cache_hits,
            counts.prompt_tokens,
        ) == (
            stats.num_free_blocks,
            stats.kv_cache_usage,
            stats.num_running,
            stats.num_waiting,
            stats.num_preemptions,
            stats.num_swapped_blocks,
            stats.prefix_cache_hits,
            stats.prompt_tokens,
        )
    if "small pool" in name or name == "swapping":
        assert simulation.scheduler.counts.preemptions > 0  # otherwise this compared too little


def without_contents(event: Event) -> Event:
    """An event without what a simulation invents: times, tokens and what follows from them."""
    invented = {
        "time": 0.0,
        "began": 0.0,
        "token_id": 0,
        "text": "",
        "prompt_token_ids": (),
        "prompt_texts": (),
        "block_hash": "",
        "parent_block_hash": None,
    }
    names = {each.name for each in fields(event)}
    return replace(event, **{name: value for name, value in invented.items() if name in names})


@pytest.mark.parametrize("name", SYSTEMS)
def test_its_trace_is_that_of_the_real_engine(name: str, model: LoadedModel) -> None:
    config = EngineConfig(**(SYSTEMS[name] | EngineOptions(block_size=BLOCK_SIZE, max_model_len=48)))
    real: list[Event] = []
    simulated: list[Event] = []
    engine = LLMEngine(config, model, observer=real.append)
    simulation = Simulation(config, engine.memory_plan, one_second, observer=simulated.append)
    for _ in both_step_by_step(engine, simulation, some_requests(1, 14, 3, 9)):
        pass
    trace = Trace.of(simulated)
    trace.check()
    assert trace.final().time == trace.num_steps == simulation.num_steps  # each step takes a second
    assert list(map(without_contents, simulated)) == list(map(without_contents, real))


def test_the_engines_own_memory_breakdown_is_seen_in_a_step(model: LoadedModel) -> None:
    config = EngineConfig(block_size=4, max_model_len=48, num_blocks=24, enable_prefix_caching=False)
    engine, simulation = LLMEngine(config, model), Simulation(config, plan(24), one_second)
    for number, timed in enumerate(some_requests(5, 6, 1, 0)):
        params = SamplingParams(max_tokens=timed.num_output_tokens, ignore_eos=True)
        engine.add_request(str(number), prompt_token_ids(timed, number), params)
        simulation.add(timed)
    while engine.has_unfinished_requests():
        engine.step()
        simulation.step()
        seen = simulation.manager.breakdown(simulation.scheduler.queues.running, None)
        assert seen == engine.memory_breakdown()


@settings(max_examples=examples(100))
@given(
    seed=st.integers(0, 10_000),
    most_samples=st.integers(1, 3),
    name=st.sampled_from(sorted(SYSTEMS)),
    together=st.booleans(),
)
def test_every_request_is_answered_once_and_its_tokens_add_up(
    seed: int, most_samples: int, name: str, together: bool
) -> None:
    config = EngineConfig(**(SYSTEMS[name] | EngineOptions(block_size=BLOCK_SIZE)))
    simulation = Simulation(config, plan(config.num_blocks or 0, 48), one_second, answers_together=together)
    requests = some_requests(seed, 20, most_samples, 0)
    result = simulate(simulation, requests)
    assert result.num_requests == len(requests)
    assert result.prompt_tokens == sum(each.num_prompt_tokens for each in requests)
    assert result.output_tokens == sum(each.num_output_tokens * each.num_samples for each in requests)
    assert not simulation.has_unfinished_requests
    assert simulation.manager.usage == 0
    simulation.manager.check_invariants([])
    simulation.scheduler.check_invariants([])


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> object:
        config = EngineConfig(num_blocks=200)
        rng = np.random.default_rng(seed)
        simulation = Simulation(config, plan(200, 2048, 16), lambda load: 0.01 + 1e-5 * load.num_kv_tokens)
        return simulate(simulation, stream(SHAREGPT, poisson(1.0, rng), rng, num_requests=30))

    assert run(3) == run(3)
    assert run(3) != run(4)


def served(simulation: Simulation, requests: list[TimedRequest]) -> list[Served]:
    """All requests with their times, in the order of their ends."""
    answered: list[Served] = []
    for each in requests:
        simulation.add(each)
    simulation.on_finished = answered.append
    while simulation.has_unfinished_requests:
        simulation.step()
    return answered


def test_one_request_alone_takes_a_step_for_each_token() -> None:
    simulation = Simulation(EngineConfig(), plan(20, 64, 16), one_second)
    (alone,) = served(simulation, [TimedRequest(0.0, 10, 7)])
    assert (alone.first_token, alone.finished) == (1.0, 7.0)


def test_a_prompt_longer_than_the_budget_takes_more_steps() -> None:
    simulation = Simulation(EngineConfig(max_num_batched_tokens=4), plan(20, 64, 16), one_second)
    (alone,) = served(simulation, [TimedRequest(0.0, 10, 7)])
    assert (alone.first_token, alone.finished) == (3.0, 9.0)


def test_with_enough_memory_every_request_takes_as_long_as_alone() -> None:
    simulation = Simulation(EngineConfig(max_num_batched_tokens=10_000), plan(2000), one_second)
    answered = served(simulation, [TimedRequest(0.0, 5, 1 + number) for number in range(30)])
    assert [each.finished for each in answered] == [float(1 + number) for number in range(30)]


def test_without_cost_nothing_takes_time() -> None:
    simulation = Simulation(EngineConfig(), plan(50), lambda load: 0.0)
    answered = served(simulation, [TimedRequest(0.0, 5, 9) for _ in range(20)])
    assert {each.finished for each in answered} == {0.0}


def test_a_static_batch_can_answer_together() -> None:
    config = EngineConfig(batching="static", preemption_mode="never", max_num_seqs=2)
    requests = [TimedRequest(0.0, 5, count) for count in (2, 6, 1, 3)]
    alone = served(Simulation(config, plan(50), one_second), requests)
    together = served(Simulation(config, plan(50), one_second, answers_together=True), requests)
    assert [each.finished for each in alone] == [2.0, 6.0, 7.0, 9.0]
    assert [each.finished for each in together] == [6.0, 6.0, 9.0, 9.0]


def test_what_a_step_computes_is_counted() -> None:
    loads: list[StepLoad] = []

    def remember(load: StepLoad) -> float:
        loads.append(load)
        return 1.0

    simulation = Simulation(EngineConfig(block_size=4, max_num_batched_tokens=6), plan(50), remember)
    served(simulation, [TimedRequest(0.0, 8, 2, num_samples=2)])
    first, second, third = loads
    # 6 of 8 tokens: each query sees itself and the keys before it, 1 + 2 + ... + 6 pairs.
    assert (first.num_tokens, first.num_sampled, first.num_kv_tokens, first.num_pairs) == (6, 0, 6, 21)
    assert (second.num_tokens, second.num_sampled, second.num_kv_tokens, second.num_pairs) == (2, 1, 8, 15)
    # Two samples, one token each. The prompt's last block is full, so nothing is copied.
    assert (third.num_seqs, third.num_sampled, third.num_kv_tokens, third.num_pairs) == (2, 2, 18, 18)
    assert third.num_copied_tokens == 0


@pytest.mark.parametrize(
    ("options", "num_copied"),
    [
        (EngineOptions(), [0, 4, 0]),  # one block, which one of the two writes first
        (EngineOptions(kv_layout="contiguous"), [0, 6, 0]),  # all slots of the prompt
    ],
)
def test_copies_of_forks_are_counted(options: EngineOptions, num_copied: list[int]) -> None:
    seen: list[int] = []

    def remember(load: StepLoad) -> float:
        seen.append(load.num_copied_tokens)
        return 1.0

    simulation = Simulation(EngineConfig(**(options | EngineOptions(block_size=4))), plan(100), remember)
    served(simulation, [TimedRequest(0.0, 6, 3, num_samples=2)])
    assert seen == num_copied


def test_swapped_blocks_are_counted() -> None:
    seen: list[int] = []

    def remember(load: StepLoad) -> float:
        seen.append(load.num_swapped_tokens)
        return 1.0

    config = EngineConfig(block_size=4, preemption_mode="swap", enable_prefix_caching=False)
    simulation = Simulation(config, plan(9), remember)
    served(simulation, [TimedRequest(0.0, 8, 16), TimedRequest(0.0, 8, 16)])
    assert sum(seen) == 2 * 4 * simulation.scheduler.counts.swapped_blocks > 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (TimedRequest(0.0, 60, 5), "max_model_len=64"),
        (TimedRequest(0.0, 30, 20, num_samples=8), "8 samples of 30 prompt"),
        (TimedRequest(0.0, 1, 1, num_samples=33), "max_num_seqs is 32"),
    ],
)
def test_a_request_that_can_never_fit_is_refused(request_: TimedRequest, message: str) -> None:
    simulation = Simulation(EngineConfig(max_num_seqs=32, block_size=4), plan(40), one_second)
    with pytest.raises(RequestTooLargeError, match=message):
        simulation.add(request_)
    assert not simulation.has_unfinished_requests


def test_prompts_share_their_prefixes_and_nothing_else() -> None:
    first, second, other = (
        prompt_token_ids(TimedRequest(0.0, 10, 1, num_prefix_tokens=6, prefix=prefix), number)
        for number, prefix in enumerate((0, 0, 1))
    )
    assert first[:6] == second[:6] != other[:6]
    assert not {*first[6:]} & {*second[6:], *other[6:]}
    assert len(first) == 10
