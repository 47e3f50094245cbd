"""Runs one attention step on a GPU that is only pretended, and prints its launches as JSON.

Triton compiles each kernel for the GPU as it does on a machine that has one. Then nothing is launched. This
needs its own process, because other tests turn Triton's interpreter on and never off.

python -m tests.triton_kernels.pretended_gpu sm_90 96      each kernel takes 96 registers, it is said
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from minipaged.bench.kernel_resources import TARGETS
from minipaged.triton_kernels.attention import TritonAttention
from tests.attention.ragged import Heads, Span, make_step

if TYPE_CHECKING:
    from triton.backends.driver import DriverBase


class PretendedGpu:
    """As much of a Triton driver as a launch asks for."""

    def __init__(self, target: str, registers: int) -> None:
        self.launches: list[tuple[str, tuple[int, ...], int]] = []
        self._capability = int(target.removeprefix("sm_"))
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": TARGETS[target].program_bytes},
            load_binary=lambda name, kernel, shared, device: (1, 1, registers, 0, 1024),
            unload_module=lambda module: None,
        )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def launcher_cls(self, source: object, metadata: SimpleNamespace) -> Callable[..., None]:
        return lambda *args: self.launches.append((metadata.name, args[:3], metadata.shared))


def main(target: str, registers: int) -> None:
    pretended = PretendedGpu(target, registers)
    driver.set_active(cast("DriverBase", pretended))
    attention = TritonAttention(dataclasses.replace(TARGETS[target], num_multiprocessors=10))
    heads = Heads(num_kv_heads=2, group=4, head_dim=128)
    step = make_step([Span(1, 9000), Span(1, 30), Span(20, 50)], heads, 16, dtype=torch.float16)
    attention(step.query, step.kv_layer, step.metadata, heads.scale)
    json.dump(pretended.launches, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
