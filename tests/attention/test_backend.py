"""Which attention backend a name selects."""

from __future__ import annotations

import pytest
import torch

from minipaged.attention import backend
from minipaged.attention.backend import select_attention
from minipaged.attention.reference import reference_attention
from minipaged.cpu.attention.attention import CpuAttention
from minipaged.errors import ConfigError

CPU = torch.device("cpu")


def test_on_a_cpu() -> None:
    assert isinstance(select_attention("auto", CPU), CpuAttention)
    assert isinstance(select_attention("cpu", CPU), CpuAttention)
    assert select_attention("reference", CPU) is reference_attention


def test_the_cpu_path_needs_a_cpu() -> None:
    with pytest.raises(ConfigError, match="device='cpu'"):
        select_attention("cpu", torch.device("cuda"))


def test_auto_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton if it can run, or else the backend that runs everywhere."""
    asked: list[torch.device] = []
    monkeypatch.setattr(backend, "prepare_triton", asked.append)
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    assert select_attention("auto", torch.device("cuda")) is reference_attention
    assert select_attention("auto", torch.device("mps")) is reference_attention
    assert not asked


def test_triton_by_name() -> None:
    pytest.importorskip("triton")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert type(select_attention("triton", device)).__name__ == "TritonAttention"
