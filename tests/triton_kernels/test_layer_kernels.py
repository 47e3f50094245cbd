"""The fused steps of a layer, compared with the modules of `minipaged/model/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from minipaged.model.config import RopeConfig
from minipaged.model.layer import RMSNorm, SelfAttention
from minipaged.model.rope import RotaryEmbedding
from minipaged.triton_kernels.layer_kernels import add_norm, norm, rotate_heads, silu_times
from minipaged.triton_kernels.setup import INTERPRET
from tests.oracle import config_of, make_config

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    close = CLOSE[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=close, atol=close)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 4), size=st.sampled_from([1, 7, 64, 96, 1000]), dtype=DTYPES, adds=st.booleans())
def test_norms(rows: int, size: int, dtype: torch.dtype, adds: bool) -> None:
    module = RMSNorm(size, 1e-5, dtype=dtype, device=DEVICE)
    module.weight.copy_(numbers(size, dtype=dtype, seed=1))
    x, residual = numbers(2, rows, size, dtype=dtype, seed=2)
    if adds:
        total = residual + x
        assert_close(add_norm(x, residual, module.weight, module.eps), module(total))
        if dtype != torch.bfloat16:  # Triton's interpreter truncates to bfloat16, where a GPU rounds
            assert torch.equal(residual, total), "the sum is rounded as PyTorch rounds it"
        assert_close(residual, total)
    else:
        before = x.clone()
        assert_close(norm(x, module.weight, module.eps), module(x))
        assert torch.equal(x, before)


def test_a_row_of_zeros_and_one_of_great_numbers() -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [6e4, -6e4, 3e4]], dtype=torch.float16, device=DEVICE)
    module = RMSNorm(3, 1e-6, dtype=torch.float16, device=DEVICE)
    module.weight.fill_(1)
    assert_close(norm(x, module.weight, module.eps), module(x))


def attention_part(
    qk_norm: bool, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> SelfAttention:
    shape = config_of(make_config("qwen3" if qk_norm else "llama"))
    shape = replace(shape, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, hidden_size=16)
    part = SelfAttention(shape, dtype, DEVICE)
    for i, parameter in enumerate(part.parameters()):
        parameter.copy_(numbers(*parameter.shape, dtype=dtype, seed=10 + i))
    return part


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(0, 3),
    heads=st.sampled_from([(1, 1), (4, 2), (6, 1)]),
    head_dim=st.sampled_from([2, 16, 64, 80, 96]),
    qk_norm=st.booleans(),
    dtype=DTYPES,
)
def test_heads(rows: int, heads: tuple[int, int], head_dim: int, qk_norm: bool, dtype: torch.dtype) -> None:
    part = attention_part(qk_norm, *heads, head_dim, dtype)
    positions = torch.arange(rows, device=DEVICE) * 1000
    cos, sin = RotaryEmbedding(RopeConfig(), head_dim, DEVICE)(positions, dtype)
    hidden = numbers(rows, 16, dtype=dtype, seed=3) / 4
    norms = None
    if part.q_norm is not None and part.k_norm is not None:
        norms = part.q_norm.weight, part.k_norm.weight, part.q_norm.eps
    found = rotate_heads(part.qkv_proj(hidden), cos, sin, *heads, norms)
    for each, expected in zip(found, part.heads(hidden, cos, sin), strict=True):
        assert_close(each, expected)
        assert each.stride()[1:] == (head_dim, 1), "as attention takes them"


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 3), size=st.sampled_from([1, 3, 64, 1500]), dtype=DTYPES)
def test_silu_times(rows: int, size: int, dtype: torch.dtype) -> None:
    gate_up = numbers(rows, 2 * size, dtype=dtype) * 4
    gate, up = gate_up.chunk(2, dim=-1)
    assert_close(silu_times(gate_up), F.silu(gate) * up)


@pytest.mark.parametrize("number", [-1e4, 1e4])
def test_gates_far_from_zero(number: float) -> None:
    gate_up = torch.tensor([[number, 1.0]], device=DEVICE)
    assert silu_times(gate_up).item() == max(number, 0.0)


def test_they_compile_for_gpus_and_spill_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.triton_kernels.compile_layer_kernels"],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name != INTERPRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 18
    for row in rows:
        assert row["spill_bytes"] == 0, row
        assert row["shared"] < 1024, row
