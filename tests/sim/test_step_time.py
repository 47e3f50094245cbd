"""The roofline, computed by hand."""

from __future__ import annotations

import pytest

from minipaged.loading.shape_lookup import shape_of
from minipaged.sim.device import Device
from minipaged.sim.step_time import Roofline, StepLoad

DEVICE = Device("a device", 1, 100.0, 1000.0, 10.0, 4.0)


def roofline(num_devices: int = 1, overhead: float = 0.0) -> Roofline:
    return Roofline(
        weight_bytes=200.0,
        flops_per_token=500.0,
        kv_bytes_per_token=2.0,
        flops_per_pair=5.0,
        exchanged_bytes_per_token=30.0,
        device=DEVICE,
        num_devices=num_devices,
        overhead=overhead,
    )


def test_few_tokens_take_the_time_of_the_weights() -> None:
    # 200 bytes at 100 B/s; 3 tokens would compute for 1.5 s. 50 cached tokens of 2 bytes take 1 s.
    assert roofline()(StepLoad(3, 3, 3, num_kv_tokens=50, num_pairs=50)) == pytest.approx(2.0 + 1.0)


def test_many_tokens_take_the_time_of_the_arithmetic() -> None:
    # 10 tokens of 500 operations at 1000 a second; 55 pairs of 5 operations take 0.275 s.
    assert roofline()(StepLoad(1, 10, 1, num_kv_tokens=10, num_pairs=55)) == pytest.approx(5.0 + 0.275)


def test_copies_are_read_and_written_and_swaps_cross_the_bus() -> None:
    # 25 tokens of 2 bytes, twice, at 100 B/s; 4 tokens of 2 bytes at 4 B/s.
    moved = StepLoad(1, 1, 1, 0, 0, num_copied_tokens=25, num_swapped_tokens=4)
    assert roofline()(moved) == pytest.approx(2.0 + 1.0 + 2.0)


def test_two_devices_share_the_work_and_exchange_results() -> None:
    load = StepLoad(1, 10, 1, num_kv_tokens=100, num_pairs=10)
    # Half of 5 s and half of 2 s. Each sends 2 × 1/2 × 10 tokens × 30 bytes at 10 B/s.
    assert roofline(2)(load) == pytest.approx(2.5 + 1.0 + 30.0)


def test_the_overhead_is_added() -> None:
    load = StepLoad(1, 1, 1, 1, 1)
    assert roofline(overhead=0.5)(load) == pytest.approx(roofline()(load) + 0.5)


def test_a_decode_step_of_opt_13b() -> None:
    """26 GB of weights at 1,555 GB/s are 16.5 ms; 10,000 tokens of 800 KiB are 5.3 ms (paper, Table 1)."""
    model = shape_of("OPT-13B")
    a100 = Device("A100", 40 * 10**9, 1555e9, 312e12, 300e9, 32e9)
    step = Roofline.of(model, model.num_parameters or 0, a100)
    assert step(StepLoad(30, 30, 30, 10_000, 10_000)) == pytest.approx(0.01653 + 0.00527, rel=0.01)
