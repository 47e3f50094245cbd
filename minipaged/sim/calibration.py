"""Calibration: fit the step time to this machine, then predict a load that the fit has not seen.

The fit sees requests like ShareGPT's. It then predicts two loads of shorter requests, in a smaller pool,
where requests are preempted. In one load all requests arrive at once, and in the other they arrive at a rate.
Afterwards the real engine serves the same requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.sim.fitted_step_time import FittedStepTime
from minipaged.sim.lengths import SHAREGPT, LengthDistribution
from minipaged.sim.measures import SimulationResult
from minipaged.sim.mirror import MirroredSimulation
from minipaged.sim.run import simulate
from minipaged.sim.simulation import Simulation
from minipaged.sim.timed_request import TimedRequest, all_at_once, poisson, stream

_TRAINING = SHAREGPT.scaled_to(512)
_HELD_OUT = LengthDistribution("held out", mean_prompt=60, mean_output=40, max_model_len=384)
_MAX_MODEL_LEN = 512
_LARGE_POOL, _SMALL_POOL = 400, 60  # blocks of 16 tokens
_NUM_SEQS = 32


@dataclass(frozen=True)
class Prediction:
    """What was predicted for one load, and what was then measured.

    Attributes:
        name: a description of the load.
        predicted: the result of the simulation with the fitted step time.
        measured: the result of the real engine.
    """

    name: str
    predicted: SimulationResult
    measured: SimulationResult


@dataclass(frozen=True)
class Calibration:
    """A fit, and how well it predicts.

    Attributes:
        step_time: the fit.
        num_steps: the number of steps that the fit has seen.
        explained: the share of the steps' variance that the fit explains, R².
        predictions: the predictions for loads that the fit has not seen.
    """

    step_time: FittedStepTime
    num_steps: int
    explained: float
    predictions: tuple[Prediction, ...]


def calibrate(
    model: LoadedModel, *, num_requests: int, seed: int, tell: Callable[[str], None]
) -> Calibration:
    """Fit, predict and measure.

    Args:
        model: the model that the real engine runs.
        num_requests: the number of requests in each load. Two loads are for the fit, and two are predicted.
        seed: the seed of the lengths and the arrivals.
        tell: called with a description of what is done next.
    """
    tell("a few requests, so that all code is compiled")
    _measure(model, _LARGE_POOL, _burst(_TRAINING, 10, seed))
    tell(f"for the fit: {num_requests} requests at once")
    burst, first = _measure(model, _LARGE_POOL, _burst(_TRAINING, num_requests, seed))
    rate = 0.5 * first.requests_per_second
    tell(f"for the fit: {num_requests} requests at {rate:.3g} a second")
    steady, _ = _measure(model, _LARGE_POOL, _at_rate(_TRAINING, rate, num_requests, seed + 1))
    loads, seconds = burst.loads + steady.loads, np.array(burst.seconds + steady.seconds)
    step_time = FittedStepTime.fit(loads, seconds.tolist())

    requests = _burst(_HELD_OUT, num_requests, seed + 2)
    tell(f"held out: {num_requests} other requests at once, in a smaller pool")
    at_once = _predict(f"{num_requests} requests at once", step_time, model, requests)
    rate = 0.8 * at_once.predicted.requests_per_second
    tell(f"held out: {num_requests} other requests at {rate:.3g} a second")
    requests = _at_rate(_HELD_OUT, rate, num_requests, seed + 3)
    over_time = _predict(f"{num_requests} requests at {rate:.3g} a second", step_time, model, requests)
    errors = np.array([step_time(load) for load in loads]) - seconds
    explained = 1 - float(np.square(errors).sum() / np.square(seconds - seconds.mean()).sum())
    return Calibration(step_time, len(loads), explained, (at_once, over_time))


def _predict(
    name: str, step_time: FittedStepTime, model: LoadedModel, requests: list[TimedRequest]
) -> Prediction:
    engine = LLMEngine(_config(_SMALL_POOL), model)
    predicted = simulate(Simulation(engine.config, engine.memory_plan, step_time), requests)
    return Prediction(name, predicted, simulate(MirroredSimulation(engine), requests))


def _measure(
    model: LoadedModel, num_blocks: int, requests: list[TimedRequest]
) -> tuple[MirroredSimulation, SimulationResult]:
    simulation = MirroredSimulation(LLMEngine(_config(num_blocks), model))
    return simulation, simulate(simulation, requests)


def _config(num_blocks: int) -> EngineConfig:
    return EngineConfig(
        num_blocks=num_blocks,
        max_model_len=_MAX_MODEL_LEN,
        max_num_seqs=_NUM_SEQS,
        max_num_batched_tokens=256,
        enable_prefix_caching=False,
    )


def _burst(lengths: LengthDistribution, count: int, seed: int) -> list[TimedRequest]:
    return list(stream(lengths, all_at_once(), np.random.default_rng(seed), num_requests=count))


def _at_rate(lengths: LengthDistribution, rate: float, count: int, seed: int) -> list[TimedRequest]:
    rng = np.random.default_rng(seed)
    return list(stream(lengths, poisson(rate, rng), rng, num_requests=count))
