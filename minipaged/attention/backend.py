"""Which attention an engine runs with."""

from __future__ import annotations

import torch

from minipaged.attention.cpu import CPUAttention
from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.config import AttentionBackend
from minipaged.errors import ConfigError


def select_attention(backend: AttentionBackend, device: torch.device) -> AttentionFn:
    """The attention for a backend's name; `"auto"` takes the fastest that the device has.

    Raises:
        ConfigError: the backend does not run on the device.
    """
    if backend == "auto":
        backend = "cpu" if device.type == "cpu" else "reference"
    if backend == "cpu":
        if device.type != "cpu":
            raise ConfigError(f"attention_backend='cpu' needs device='cpu', not {str(device)!r}; use 'auto'")
        return CPUAttention()
    return reference_attention
