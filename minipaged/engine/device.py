"""Choosing the device and the dtype of an engine."""

from __future__ import annotations

import torch

from minipaged.choices import DType
from minipaged.config import EngineConfig
from minipaged.errors import ConfigError
from minipaged.loading.loader import LoadedModel

OLDEST_WITH_BFLOAT16 = (8, 0)
"""The lowest compute capability of NVIDIA GPUs that compute in bfloat16. A T4 has 7.5."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(device: str) -> torch.device:
    """The torch device of a setting.

    `"auto"` means cuda if this machine has it, otherwise the CPU. Any other value is a torch device string.
    `"auto"` never means an Apple GPU (mps), because no test has run on one.

    Returns:
        The device with its index. The index of `"cuda"` is that of the current device.

    Raises:
        ConfigError: there is no such device, or this machine does not have it.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(
            f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', not {device!r}"
        ) from None
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(resolved.type, False):
        raise ConfigError(f"device {device!r} is not on this machine; use 'auto' or 'cpu'")
    if resolved.type == "cuda":
        return _with_index(resolved)
    return torch.device(resolved.type, 0) if resolved.type == "mps" else resolved


def _with_index(device: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    if device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    if device.index >= count:
        names = ", ".join(f"'cuda:{index}'" for index in range(count))
        raise ConfigError(f"device {str(device)!r} is not on this machine, which has {names}")
    return device


def resolve_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """The torch dtype of a setting.

    `"auto"` means bfloat16 on cuda, float16 on GPUs that are too old for bfloat16, and float32 on other
    devices.

    Raises:
        ConfigError: the GPU has no bfloat16.
    """
    if device.type != "cuda" or dtype not in ("auto", "bfloat16"):
        return torch.float32 if dtype == "auto" else _DTYPES[dtype]
    capability = torch.cuda.get_device_capability(device)
    if capability >= OLDEST_WITH_BFLOAT16:
        return torch.bfloat16
    if dtype == "auto":
        return torch.float16
    raise ConfigError(
        f"dtype='bfloat16' needs a GPU of compute capability 8.0 or newer, and "
        f"{torch.cuda.get_device_name(device)} has {capability[0]}.{capability[1]}: use 'auto', which takes "
        "float16 there"
    )


def check_exactness(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse modes of PyTorch in which an engine could not give the tokens that it promises.

    Such a mode applies to the whole process, and the user has chosen it. So an engine does not change it.

    Args:
        device, dtype: the device and dtype of the engine.

    Raises:
        ConfigError: float32 products are rounded to fewer digits, or PyTorch would refuse to sample.
    """
    rounding = ""
    if device.type == "cuda":
        rounding = torch.backends.cuda.matmul.fp32_precision
    elif device.type == "cpu":
        rounding = torch.backends.mkldnn.matmul.fp32_precision  # pyright: ignore[reportAttributeAccessIssue]
    # PyTorch sets tf32 for GPUs and CPUs together, but CPUs have no tf32. So on a CPU it does not matter.
    if dtype == torch.float32 and rounding in (("tf32",) if device.type == "cuda" else ("bf16",)):
        raise ConfigError(
            f"PyTorch is set to round float32 products to {rounding}, so that greedy tokens could be others "
            "than the model's: call torch.set_float32_matmul_precision('highest'), or use dtype='bfloat16'"
        )
    strict = torch.are_deterministic_algorithms_enabled()
    if device.type == "cuda" and strict and not torch.is_deterministic_algorithms_warn_only_enabled():
        raise ConfigError(
            "torch.use_deterministic_algorithms(True) makes PyTorch refuse the running sum from which tokens "
            "are drawn on a GPU (torch.cumsum): add warn_only=True, or leave it off; greedy tokens do not "
            "depend on it"
        )


def check_given_model(config: EngineConfig, model: LoadedModel) -> None:
    """Refuse settings that contradict a model that is already loaded.

    Raises:
        ConfigError: the settings ask for another dtype or device than the model's.
    """
    decoder = model.decoder
    if config.dtype != "auto" and _DTYPES[config.dtype] != decoder.dtype:
        raise ConfigError(f"dtype={config.dtype!r}, but the given model is in {decoder.dtype}; use 'auto'")
    if config.device == "auto":
        return
    wanted = resolve_device(config.device)
    same = wanted.type == decoder.device.type and (wanted.index or 0) == (decoder.device.index or 0)
    if not same and (config.device != "cuda" or decoder.device.type != "cuda"):
        raise ConfigError(f"device={config.device!r}, but the given model is on {decoder.device}; use 'auto'")
