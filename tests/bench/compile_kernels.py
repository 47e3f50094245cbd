"""Compiles some kernels, and prints what they need as JSON.

It runs in its own process, because other tests turn Triton's interpreter on and never off.

python -m tests.bench.compile_kernels few       some kernels on some GPUs
python -m tests.bench.compile_kernels sm_80     the kernels as all models need them, on one GPU
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator

import torch

from minipaged.bench.kernel_compile import (
    BLOCK_SIZES,
    DTYPES,
    GROUPS,
    HEAD_DIMS,
    KERNELS,
    KernelName,
    Variant,
    compile_variant,
    make_variant,
)
from minipaged.bench.kernel_resources import TARGETS

ATTENTION: tuple[KernelName, ...] = ("decode", "decode_part", "prefill")


def few() -> Iterator[Variant]:
    """Every kernel in float32, and the ways in which GPUs multiply half precision."""
    for name in KERNELS:
        yield make_variant(name, "sm_80", torch.float32, 128, 4, 16)
    for name in ATTENTION:
        yield make_variant(name, "sm_75", torch.float16, 128, 3, 16)
        yield make_variant(name, "sm_90", torch.bfloat16, 96, 7, 32)
    yield make_variant("prefill", "sm_100", torch.float16, 64, 1, 64)
    yield make_variant("prefill", "sm_120", torch.bfloat16, 128, 8, 16)


def whole(target: str) -> Iterator[Variant]:
    """Any two of an attention kernel, dtype, head dimension, group and block size occur together."""
    for d, head_dim in enumerate(HEAD_DIMS):
        yield make_variant("write_kv", target, DTYPES[d % 3], head_dim, 4, 16)
        yield make_variant("copy_blocks", target, DTYPES[d % 3], head_dim, 4, 16)
        yield make_variant("merge", target, DTYPES[d % 3], head_dim, 4, 16)
        for g, group in enumerate(GROUPS):
            name, dtype = ATTENTION[(d + 2 * g) % 3], DTYPES[(d + g) % 3]
            yield make_variant(name, target, dtype, head_dim, group, BLOCK_SIZES[(d + g) % 4])


def row(variant: Variant) -> dict[str, object]:
    """What a variant is, what it needs, and what its tiles say that it may need."""
    compiled = compile_variant(variant)
    return {
        "kernel": variant.name,
        "target": variant.target,
        "dtype": str(variant.dtype).removeprefix("torch."),
        "head_dim": variant.head_dim,
        "group": variant.group,
        "block_size": variant.block_size,
        "fault": compiled.fault_on(TARGETS[variant.target]),
        "spill_bytes": compiled.spill_bytes,
        "tile_bytes": variant.tiles and variant.tiles.shared_bytes,
        "waits": compiled.waits,
        "ttir": compiled.ttir,
    } | dataclasses.asdict(compiled.needs)


if __name__ == "__main__":
    what = sys.argv[1]
    json.dump([row(variant) for variant in (few() if what == "few" else whole(what))], sys.stdout)
