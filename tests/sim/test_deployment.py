"""A model on devices: the memory that is left, and the pool that it makes."""

from __future__ import annotations

import dataclasses

import pytest

from minipaged import EngineConfig
from minipaged.errors import ConfigError
from minipaged.loading.shape_lookup import shape_of
from minipaged.sim.deployment import Deployment
from minipaged.sim.device import find_device
from minipaged.sim.systems import SYSTEMS, find_system

OPT, A100 = shape_of("OPT-13B"), find_device("A100-40GB")


def test_the_cache_gets_what_the_weights_leave() -> None:
    deployment = Deployment(OPT, A100)
    assert deployment.usable_kv_bytes == int(0.92 * 40e9) - 2 * 12_853_473_280
    assert deployment.memory_plan(EngineConfig()).num_blocks == deployment.usable_kv_bytes // (16 * 819_200)


def test_12_gib_are_the_papers_15_7_thousand_slots() -> None:
    plan = Deployment(OPT, A100, kv_cache_bytes=12 * 2**30).memory_plan(EngineConfig())
    assert (plan.num_blocks * plan.block_size, plan.max_model_len) == (15_728, 2048)
    assert plan.num_cpu_blocks is None


def test_swapping_gets_blocks_on_the_cpu() -> None:
    plan = Deployment(OPT, A100).memory_plan(EngineConfig(num_blocks=300, preemption_mode="swap"))
    assert (plan.num_blocks, plan.num_cpu_blocks) == (300, 299)


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves no memory for the KV cache of OPT-66B"):
        Deployment(shape_of("OPT-66B"), A100)
    assert Deployment(shape_of("OPT-66B"), A100, num_devices=4).usable_kv_bytes > 0


def test_a_model_whose_weights_are_not_counted_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not follow from its config"):
        Deployment(dataclasses.replace(OPT, num_parameters=None), A100)


@pytest.mark.parametrize("wrong", [{"num_devices": 0}, {"overhead": -1.0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="at least 1 device"):
        dataclasses.replace(Deployment(OPT, A100), **wrong)


def test_every_system_is_a_valid_engine() -> None:
    for system in SYSTEMS:
        assert find_system(system.name) is system
        assert system.config(block_size=32).block_size == 32
    with pytest.raises(ConfigError, match="'orca' is not a system: fastertransformer"):
        find_system("orca")
