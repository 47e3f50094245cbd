"""The statistics of a run, compared with numbers counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged.config import EngineConfig
from minipaged.engine.llm_engine import LLMEngine
from minipaged.loading.loader import LoadedModel
from minipaged.sampling.params import SamplingParams
from minipaged.view.pool_meter import PoolMeter
from minipaged.view.pool_snapshot import take_snapshot
from tests.view.histories import snapshot


def test_one_snapshot_by_hand() -> None:
    meter = PoolMeter(max_model_len=20)
    meter.add(snapshot(num_sequences=5))
    # 2 full shared blocks and 5 half full blocks, of 4 slots each.
    assert (meter.peak_used, meter.peak_shared, meter.peak_running) == (7, 2, 5)
    assert (meter.mean_slots, meter.mean_unused) == (28, 10)
    # 5 × 20 slots reserved, 10 tokens in each.
    assert (meter.mean_reserved, meter.mean_reserved_unused) == (100, 50)


def test_means_are_over_the_steps_in_which_something_ran() -> None:
    meter = PoolMeter(max_model_len=20)
    meter.add(snapshot(num_sequences=1))
    meter.add(snapshot(num_sequences=3))
    meter.add(replace(snapshot(), running=()))
    assert meter.mean_slots == (12 + 20) / 2
    assert meter.mean_unused == (2 + 6) / 2
    assert meter.peak_running == 3


def test_nothing_was_measured() -> None:
    meter = PoolMeter(max_model_len=20)
    assert meter.mean_slots == meter.mean_reserved_unused == 0


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_paging_wastes_less_than_a_block_for_each_sequence(tiny: LoadedModel, block_size: int) -> None:
    config = EngineConfig(block_size=block_size, max_model_len=64, dtype="float32", device="cpu")
    engine = LLMEngine(config, tiny)
    for i in range(4):
        params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
        engine.add_request(f"r{i}", list(range(1, 4 + 5 * i)), params)
    meter = PoolMeter(engine.max_model_len)
    while engine.has_unfinished_requests():
        engine.step()
        taken = take_snapshot(engine)
        assert taken.num_unused_slots <= (block_size - 1) * len(taken.running_sequences)
        meter.add(taken)
    assert meter.mean_unused <= 4 * (block_size - 1)
    assert meter.mean_reserved == pytest.approx(64 * 4)
    assert meter.mean_unused < meter.mean_reserved_unused
