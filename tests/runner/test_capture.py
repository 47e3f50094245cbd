"""Graphs of two devices in one process. The devices are made up, so that nothing is captured in truth."""

from __future__ import annotations

import pytest
import torch

from minipaged.runner.capture import CudaGraphCapture, on_device, on_side_stream
from tests.fake_cuda import fake_cuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")


def test_each_device_has_its_own_stream_for_all_of_its_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS has a workspace for each stream; and PyTorch's own stream is one of the first device."""
    with fake_cuda(monkeypatch) as (machine, _):
        current: list[int] = []
        first, second = CudaGraphCapture(torch.device("cuda", 0)), CudaGraphCapture(torch.device("cuda", 1))
        for capture in (first, second, first, second):
            capture(lambda: current.append(machine.current))
    assert current == [0, 0, 1, 1, 0, 0, 1, 1], "each is run once, and then captured"
    assert [device for _, device in machine.captures] == [0, 1, 0, 1]
    assert machine.streams == 2
    assert machine.captures[0][0] is machine.captures[2][0]
    assert machine.captures[1][0] is machine.captures[3][0]
    assert machine.current == 0


def test_the_current_device_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda(monkeypatch) as (machine, _):
        with on_device(torch.device("cuda", 1)):
            assert machine.current == 1
        assert machine.current == 0
        with on_side_stream(torch.device("cuda", 1)):
            assert machine.current == 1


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_other_devices_have_no_current_one(name: str) -> None:
    with on_device(torch.device(name)), on_side_stream(torch.device(name)):
        pass
