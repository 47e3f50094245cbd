"""Turns Triton's interpreter on where there is no GPU, before any test imports a kernel."""

from __future__ import annotations

import torch

from minipaged.errors import ConfigError
from minipaged.triton_kernels.setup import prepare_triton

collect_ignore: list[str] = []

try:
    prepare_triton(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
except ConfigError:  # Triton is missing or does not work: tests/triton_kernels/test_in_engine.py says which
    collect_ignore += ["test_kernels.py", "test_cache_kernels.py", "test_far_blocks.py"]
    collect_ignore += ["test_layer_kernels.py", "test_fused.py", "test_sampling_kernel.py"]
