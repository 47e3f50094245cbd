"""A mirrored run keeps the engine's times, and notices if the two disagree."""

from __future__ import annotations

import pytest
import torch

from minipaged import EngineConfig, LLMEngine, SamplingParams
from minipaged.errors import InvariantError
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.sim.mirror import MirroredSimulation
from minipaged.sim.run import simulate
from minipaged.sim.timed_request import TimedRequest


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))


def engine(model: LoadedModel) -> LLMEngine:
    config = EngineConfig(num_blocks=12, block_size=4, max_model_len=40, enable_prefix_caching=False)
    return LLMEngine(config, model)


def test_a_run_takes_the_time_of_the_real_engine(model: LoadedModel) -> None:
    simulation = MirroredSimulation(engine(model))
    requests = [TimedRequest(0.0, 6, 20) for _ in range(5)] + [TimedRequest(1000.0, 5, 5, num_samples=2)]
    result = simulate(simulation, requests)
    assert result.num_requests == 6
    assert result.num_preemptions > 0
    assert len(simulation.loads) == len(simulation.seconds) == result.num_steps
    # The clock jumped over the time in which nothing ran.
    assert result.seconds > 1000 > sum(simulation.seconds) > 0


def test_a_disagreement_is_noticed(model: LoadedModel) -> None:
    other = engine(model)
    simulation = MirroredSimulation(other)
    simulation.add(TimedRequest(0.0, 6, 10))
    other.add_request("one more", [1, 2, 3], SamplingParams(temperature=0, max_tokens=9))
    with pytest.raises(InvariantError, match="after step 1, the real engine has"):
        simulation.step()
