"""Makes Triton ready on this machine: kernels are compiled where there is a GPU, else interpreted.

Triton reads the environment variable `TRITON_INTERPRET` when it decorates a kernel, that is, when the
kernel's module is imported. So this module imports no Triton and no kernel. Code that needs kernels
calls `prepare_triton` before it imports them.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version
from importlib.util import find_spec

import torch

from minipaged.errors import ConfigError

INTERPRET = "TRITON_INTERPRET"


def is_interpreted() -> bool:
    """Whether kernels that are imported now run under Triton's interpreter."""
    return os.environ.get(INTERPRET, "").lower() in ("1", "true", "yes", "on", "y")  # as Triton reads it


def prepare_triton(device: torch.device) -> None:
    """Make the kernels of this package run on `device`. Call it before the first import of a kernel.

    On a machine without a CUDA device it turns the interpreter on, for this process and its child
    processes. If the user has already set `TRITON_INTERPRET`, its value is kept.

    Raises:
        ConfigError: Triton is not installed, or does not run on the device, or its interpreter does not
            work with this NumPy.
    """
    if find_spec("triton") is None:
        raise ConfigError(
            "attention_backend='triton' needs the package triton, which is published for Linux only: "
            "use attention_backend='auto'"
        )
    if device.type not in ("cuda", "cpu"):
        raise ConfigError(
            f"attention_backend='triton' runs on cuda, and on a CPU under Triton's interpreter, not on "
            f"{str(device)!r}: use attention_backend='auto'"
        )
    if device.type == "cpu" and not is_interpreted():
        if torch.cuda.is_available():
            raise ConfigError(
                "attention_backend='triton' with device='cpu' needs Triton's interpreter, and this machine "
                f"has a GPU: use device='cuda', or start Python with {INTERPRET}=1 in the environment"
            )
        _turn_on_the_interpreter()
    if is_interpreted():
        _check_interpreter()


def _check_interpreter() -> None:
    # The interpreter's loops convert arrays of one element to integers. NumPy 2.4 no longer allows that.
    triton, numpy = version("triton"), version("numpy")
    if _major_minor(triton) < (3, 7) and _major_minor(numpy) >= (2, 4):
        raise ConfigError(
            f"the interpreter of triton {triton} does not work with numpy {numpy}: install numpy<2.4, or a "
            "torch that comes with triton 3.7 or newer"
        )


def _major_minor(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _turn_on_the_interpreter() -> None:
    os.environ[INTERPRET] = "1"
    # transformers may have imported Triton before, together with a model class. Then Triton's own kernels
    # (`tl.max`, `tl.sum`) are already decorated for compilation. Reloading decorates them again, for the
    # interpreter. Nothing else needs the compiled ones, since this process has no GPU to compile for.
    if "triton.language" in sys.modules:
        importlib.reload(importlib.import_module("triton.language.standard"))
        importlib.reload(importlib.import_module("triton.language"))
