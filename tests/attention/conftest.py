"""Before any test imports a kernel: where there is no GPU, Triton's interpreter is turned on."""

from __future__ import annotations

import torch

from minipaged.attention.triton_setup import prepare_triton
from minipaged.errors import ConfigError

collect_ignore: list[str] = []

try:
    prepare_triton(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
except ConfigError:  # no Triton, or none that works: tests/engine/test_triton_attention.py says which
    collect_ignore += ["test_triton_attention.py", "test_triton_cache.py", "test_triton_far_blocks.py"]
