"""Compiles some kernels, and prints the resources that they need as JSON.

It runs in its own process, because other tests turn Triton's interpreter on and never off.

python -m tests.bench.compile_kernels head-dim 128      all kernels and dtypes, for both chips
python -m tests.bench.compile_kernels groups 1 3 4      the attention kernels in bfloat16, for sm_80
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable

import torch

from minipaged.bench.kernel_compile import KERNELS, KernelName, compile_variant, variants
from minipaged.bench.kernel_resources import SHARED_MEMORY

WITH_GROUPS: tuple[KernelName, ...] = ("decode", "decode_part", "prefill")


def compiled(
    names: tuple[KernelName, ...],
    dtypes: Iterable[torch.dtype],
    head_dim: int,
    group: int,
    capabilities: Iterable[int],
) -> list[dict[str, object]]:
    """A row for each kernel, dtype and chip."""
    return [
        {"kernel": variant.name, "dtype": str(variant.dtype), "capability": capability, "group": group}
        | dataclasses.asdict(compile_variant(variant, capability))
        for variant in variants(names, list(dtypes), [head_dim], group)
        for capability in capabilities
    ]


def main(what: str, numbers: list[int]) -> None:
    rows: list[dict[str, object]] = []
    for number in numbers:
        if what == "head-dim":
            dtypes = (torch.float16, torch.bfloat16, torch.float32)
            rows += compiled(KERNELS, dtypes, number, 4, SHARED_MEMORY)
        else:
            rows += compiled(WITH_GROUPS, [torch.bfloat16], 128, number, [80])
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], [int(number) for number in sys.argv[2:]])
