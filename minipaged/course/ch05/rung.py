"""Triton, made ready for the device at hand: a GPU, or else Triton's interpreter on the CPU.

Triton decides how it runs a kernel when the kernel is decorated. So the exercises of chapter 5 take `triton`
and `tl` from here: this module makes the decision first. `DEVICE` says where the kernels' tensors must be.
"""

from __future__ import annotations

import torch

from minipaged.triton_kernels.setup import is_interpreted, prepare_triton

DEVICE = torch.device("cuda" if torch.cuda.is_available() and not is_interpreted() else "cpu")
"""Where kernels of this process run. With `TRITON_INTERPRET=1` in the environment it is always the CPU."""

prepare_triton(DEVICE)

import triton  # noqa: E402 (after the decision)
import triton.language as tl  # noqa: E402

__all__ = ["DEVICE", "tl", "triton"]
