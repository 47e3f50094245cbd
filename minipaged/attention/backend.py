"""Which attention an engine runs with."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from minipaged.attention.cpu import CPUAttention
from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.attention.triton_setup import prepare_triton
from minipaged.config import AttentionBackend
from minipaged.errors import ConfigError


def select_attention(backend: AttentionBackend, device: torch.device) -> AttentionFn:
    """The attention for a backend's name; `"auto"` takes the fastest that the device has.

    Raises:
        ConfigError: the backend does not run on the device.
    """
    if backend == "auto":
        backend = _fastest(device)
    if backend == "cpu":
        if device.type != "cpu":
            raise ConfigError(f"attention_backend='cpu' needs device='cpu', not {str(device)!r}; use 'auto'")
        return CPUAttention()
    if backend == "triton":
        prepare_triton(device)  # before the import, which is where Triton decides how kernels run
        from minipaged.attention.triton_backend import TritonAttention

        return TritonAttention.on(device)
    return reference_attention


def _fastest(device: torch.device) -> AttentionBackend:
    if device.type == "cpu":
        return "cpu"
    return "triton" if device.type == "cuda" and find_spec("triton") is not None else "reference"
