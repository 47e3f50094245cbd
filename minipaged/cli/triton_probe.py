"""Runs one tiny Triton kernel, to see whether Triton works here. `minipaged doctor` starts this file.

It needs its own process for two reasons. Triton decides at its import whether kernels are compiled or
interpreted (`TRITON_INTERPRET=1`). And a broken compiler may crash the process.
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
    """Returns exit code 0 if the kernel ran and its result was right."""
    values = torch.zeros(NUM_ELEMENTS, device=device)  # [NUM_ELEMENTS]
    add_one[(1,)](values, NUM_ELEMENTS)
    return 0 if values.tolist() == [1.0] * NUM_ELEMENTS else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
