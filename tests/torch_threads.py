"""Another number of PyTorch's threads for a while, as the user's choice or as PyTorch's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch

from minipaged.cpu.compiler.thread_limit import VARIABLES
from minipaged.cpu.compiler.threads import function_of_torch

needs_openmp = pytest.mark.skipif(
    function_of_torch("omp_set_num_threads") is None, reason="PyTorch's OpenMP lacks this entry point"
)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Within the block, PyTorch has `count` threads, as the user's choice."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torchs_own_threads(count: int) -> Iterator[None]:
    """Within the block, the calling thread computes with `count` threads, without a choice of the user."""
    before = torch.get_num_threads()
    set_number, mkls = (
        function_of_torch(name) for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local")
    )
    assert set_number is not None
    mkls_before = 0 if mkls is None else mkls(0)
    set_number(count)
    unset = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    try:
        with mock.patch.dict(os.environ, unset, clear=True):
            yield
    finally:
        set_number(before)
        if mkls is not None:
            mkls(mkls_before)
