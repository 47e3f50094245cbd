"""Choosing the device and the dtype of an engine."""

from __future__ import annotations

import torch

from minipaged.choices import DType
from minipaged.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.loading.loader import LoadedModel

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(device: str) -> torch.device:
    """The torch device of a setting.

    `"auto"` takes the first of cuda, mps and cpu that this machine has. Any other value is a torch device
    string.

    Raises:
        ConfigError: there is no such device, or this machine does not have it.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(
            f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', not {device!r}"
        ) from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(resolved.type, False):
        raise ConfigError(f"device {device!r} is not on this machine; use 'auto' or 'cpu'")
    return resolved


def resolve_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """The torch dtype of a setting. `"auto"` means bfloat16 on cuda, and float32 on other devices."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[dtype]


def check_given_model(config: EngineConfig, model: LoadedModel) -> None:
    """Refuse settings that contradict a model that is already loaded.

    Raises:
        ConfigError: the settings ask for another dtype or device than the model's.
    """
    decoder = model.decoder
    if config.dtype != "auto" and _DTYPES[config.dtype] != decoder.dtype:
        raise ConfigError(f"dtype={config.dtype!r}, but the given model is in {decoder.dtype}; use 'auto'")
    if config.device != "auto" and resolve_device(config.device).type != decoder.device.type:
        raise ConfigError(f"device={config.device!r}, but the given model is on {decoder.device}; use 'auto'")
