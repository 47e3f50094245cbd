"""Compiles the kernels of one head dimension, and prints what they take as JSON.

A process of its own, because tests elsewhere turn Triton's interpreter on, for good.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from minipaged.bench.kernel_compile import compile_variant, variants
from minipaged.bench.kernel_resources import SHARED_MEMORY


def main(head_dim: int) -> None:
    rows = [
        {"kernel": variant.name, "dtype": str(variant.dtype), "capability": capability}
        | dataclasses.asdict(compile_variant(variant, capability))
        for variant in variants(head_dims=[head_dim])
        for capability in SHARED_MEMORY
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
