"""The decoder's small loops against PyTorch, in float32 and in bfloat16's bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from minipaged.cpu.compiled import compiled
from minipaged.cpu.numbers import kept, number
from minipaged.model.config import RopeConfig
from minipaged.model.cpu_loops import gate_row, norm_row, rotate_head
from minipaged.model.leaves import RMSNorm
from minipaged.model.rope import RotaryEmbedding, rotate

CPU = torch.device("cpu")
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def array_of(tensor: Tensor) -> np.ndarray:
    """The same memory, bfloat16 as its bits."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def randn(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(result: Tensor, expected: Tensor) -> bool:
    """Equal but for the last bits: of a sum in another order, which may round to the next bfloat16."""
    rtol = 1e-5 if result.dtype == torch.float32 else 2**-7
    return torch.allclose(result.float(), expected.float(), rtol=rtol, atol=1e-5, equal_nan=True)


@compiled()
def convert(x, bits, back):
    for i in range(len(x)):
        bits[i] = kept(x[i], bits)
        back[i] = number(bits[i])


@settings(max_examples=200, deadline=None)
@given(values=st.lists(FLOATS, min_size=1, max_size=20))
def test_bfloat16_is_rounded_as_torch_rounds_it(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    bits, back = torch.empty(len(x), dtype=torch.bfloat16), torch.empty(len(x))
    convert(x.numpy(), array_of(bits), back.numpy())
    expected = x.to(torch.bfloat16)
    assert torch.equal(bits.isnan(), x.isnan())
    assert torch.equal(bits[~x.isnan()], expected[~x.isnan()])
    assert torch.equal(back[~x.isnan()], expected[~x.isnan()].float())


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 70), dtype=DTYPES, seed=st.integers(0, 99))
def test_norm(size: int, dtype: torch.dtype, seed: int) -> None:
    x = randn(size, seed=seed, dtype=dtype)
    norm = RMSNorm(size, 1e-5, dtype=dtype, device=CPU)
    norm.weight.data = randn(size, seed=seed + 1, dtype=dtype)
    expected, before = norm(x).detach(), x.clone()
    result = torch.empty(size)
    norm_row(array_of(x), array_of(norm.weight.data), np.float32(1e-5), result.numpy())
    assert near(result.to(dtype), expected)
    assert torch.equal(result, result.to(dtype).float())  # it is rounded as the model's numbers are
    assert torch.equal(x, before)
    norm_row(array_of(x), array_of(norm.weight.data), np.float32(1e-5), array_of(x))  # in place
    assert torch.equal(x, result.to(dtype))


def test_norm_of_zeros_and_of_a_nan() -> None:
    x, ones, result = np.zeros(8, np.float32), np.ones(8, np.float32), np.ones(8, np.float32)
    norm_row(x, ones, np.float32(1e-6), result)
    assert not result.any()
    x[3] = np.nan
    norm_row(x, ones, np.float32(1e-6), result)
    assert np.isnan(result).all()


@settings(max_examples=40, deadline=None)
@given(head_dim=st.sampled_from([2, 32, 64, 80, 128]), position=st.integers(0, 5000), dtype=DTYPES)
def test_rotation(head_dim: int, position: int, dtype: torch.dtype) -> None:
    head = randn(1, 1, head_dim, seed=position, dtype=dtype)
    cos, sin = RotaryEmbedding(RopeConfig(), head_dim, CPU)(torch.tensor([position]), dtype)
    expected = rotate(head, cos, sin)
    rotate_head(array_of(head.flatten()), array_of(cos.flatten()), array_of(sin.flatten()))
    assert near(head, expected)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 70), dtype=DTYPES, scale=st.sampled_from([1, 30, 1e4]))
def test_gate(size: int, dtype: torch.dtype, scale: float) -> None:
    gate, up = ((randn(size, seed=seed, dtype=torch.float32) * scale).to(dtype) for seed in (size, size + 1))
    like, result = torch.empty(0, dtype=dtype), torch.empty(size)
    gate_row(torch.cat((gate, up)).float().numpy(), array_of(like), result.numpy())
    assert near(result.to(dtype), F.silu(gate) * up)
    assert torch.equal(result, result.to(dtype).float())


@pytest.mark.parametrize(("gate", "expected"), [(np.inf, np.inf), (-1e30, 0.0), (0.0, 0.0), (np.nan, np.nan)])
def test_gates_at_their_ends(gate: float, expected: float) -> None:
    result = np.empty(1, np.float32)
    gate_row(np.array([gate, 1], np.float32), np.empty(0, np.float32), result)
    np.testing.assert_array_equal(result, [expected])
