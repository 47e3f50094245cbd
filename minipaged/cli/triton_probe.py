"""Runs one tiny Triton kernel, to see whether Triton can run here: `doctor` starts this file.

A process of its own, because Triton decides when it is imported whether kernels are compiled or
interpreted (`TRITON_INTERPRET=1`), and because a broken compiler may take the process down.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

NUM_ELEMENTS = 5


@triton.jit
def add_one(values, count):
    offsets = tl.arange(0, 8)  # [8]
    inside = offsets < count
    tl.store(values + offsets, tl.load(values + offsets, mask=inside) + 1, mask=inside)


def main(device: str) -> int:
    """Exit code 0 if the kernel ran and was right."""
    values = torch.zeros(NUM_ELEMENTS, device=device)  # [NUM_ELEMENTS]
    add_one[(1,)](values, NUM_ELEMENTS)
    return 0 if values.tolist() == [1.0] * NUM_ELEMENTS else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
