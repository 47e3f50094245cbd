"""The bounds are equal to arithmetic by hand, and the machine's rates can be measured."""

from __future__ import annotations

import pytest

from minipaged.bench.throughput.bounds import MachineRates, Matrices, most_tokens_per_second
from minipaged.bench.throughput.machine_rates import NUM_ROWS, RatesRequest, measure
from minipaged.loading.loader import load_model
from minipaged.sim.workload import Workload, WorkloadRequest
from tests.torch_threads import torch_threads

MATRICES = Matrices(layer=((4, 2), (2, 4)), num_layers=3, lm_head=(10, 2))
RATES = MachineRates(
    read_bytes_per_second=1360.0,
    num_rows=(1, 2, 4),
    layers_seconds=(1.0, 2.0, 3.0),
    lm_head_seconds=(0.1, 0.2, 0.3),
)


def test_one_request_reads_all_weights_for_each_token() -> None:
    assert MATRICES.num_weights == 3 * 16 + 20
    workload = Workload("one", (WorkloadRequest((1, 2), 5),))
    assert most_tokens_per_second(workload, MATRICES, 4, RATES) == pytest.approx(1360 / (68 * 4))


def test_several_requests_step_by_step() -> None:
    workload = Workload("two", (WorkloadRequest((1, 2, 3), 3), WorkloadRequest((4,), 1)))
    # Four prompt tokens at once, with logits for two of them. Then two steps of the first request alone.
    seconds = 3.0 + 0.2 + 2 * (1.0 + 0.1)
    assert most_tokens_per_second(workload, MATRICES, 4, RATES) == pytest.approx(4 / seconds)


def test_a_shared_prefix_counts_once() -> None:
    requests = tuple(WorkloadRequest((1, 2, 3, number), 1) for number in range(3))
    workload = Workload("shared", requests, num_prefix_tokens=3, num_prefixes=1)
    assert most_tokens_per_second(workload, MATRICES, 4, RATES) == pytest.approx(3 / (6 * 3.0 / 4 + 0.25))


def test_matrices_are_those_of_the_decoder() -> None:
    import torch

    decoder = load_model("tiny", dtype=torch.float32, device=torch.device("cpu")).decoder
    views = decoder.weight_views().values()
    assert Matrices.of(decoder.config).num_weights == sum(view.numel() for view in views if view.dim() == 2)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rates_are_measured(dtype: str) -> None:
    with torch_threads(1):  # numba's threads change how many PyTorch has
        rates = measure(RatesRequest(MATRICES, dtype, threads=1, read_bytes=2**20))
    assert rates.num_rows == NUM_ROWS
    assert rates.read_bytes_per_second > 0
    assert min(rates.layers_seconds + rates.lm_head_seconds) > 0
