"""A fit finds the numbers that made the times, and never a negative one."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import ConfigError
from minipaged.sim.fitted_step_time import FittedStepTime
from minipaged.sim.step_time import StepLoad


def loads(count: int, seed: int) -> list[StepLoad]:
    rng = np.random.default_rng(seed)
    return [StepLoad(*map(int, rng.integers(1, 1000, 5))) for _ in range(count)]


@settings(deadline=None)
@given(
    numbers=st.lists(st.sampled_from([0.0, 1e-6, 3e-5, 2e-3]), min_size=6, max_size=6),
    seed=st.integers(0, 99),
)
def test_exact_times_give_back_what_made_them(numbers: list[float], seed: int) -> None:
    made = FittedStepTime(*numbers)
    steps = loads(50, seed)
    found = FittedStepTime.fit(steps, [made(step) for step in steps])
    assert [found(step) for step in steps] == pytest.approx([made(step) for step in steps], abs=1e-9)


@given(seed=st.integers(0, 99))
def test_no_work_gives_time_back(seed: int) -> None:
    steps = loads(30, seed)
    noise = np.random.default_rng(seed).exponential(1.0, 30)
    found = FittedStepTime.fit(steps, noise.tolist())
    assert min(astuple(found)) >= 0
    assert found(StepLoad(0, 0, 0, 0, 0)) == found.per_step


@pytest.mark.parametrize(("num_steps", "num_times"), [(5, 5), (10, 9)])
def test_too_few_steps_are_refused(num_steps: int, num_times: int) -> None:
    with pytest.raises(ConfigError, match="a fit of 6 numbers"):
        FittedStepTime.fit(loads(num_steps, 0), [1.0] * num_times)
