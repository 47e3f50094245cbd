"""The operations on a panel's rows, compared with PyTorch in both dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.compiler.instructions import CACHE_LINE, address_of, aligned
from minipaged.cpu.products.tile import PANEL
from minipaged.cpu.products.tile_rows import gate_rows, widen_rows, write_rows
from tests.cpu.layers.test_norm_and_rotation import array_of, randn

DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


@compiled()
def write(sums, bias, residual, has_residual, result, row, column):
    address = address_of(bias) if len(bias) else 0
    write_rows(len(sums), (sums, 0, 0), address, (residual, row, column), has_residual, (result, row, column))


@compiled()
def gate(gate_up, like, result):
    gate_rows(len(gate_up), (gate_up, 0, 0), like, (result, 0, 0))


@compiled()
def widen(source, row, result):
    widen_rows(len(result), (source, row, 0), (result, 0, 0))


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 20),
    with_bias=st.booleans(),
    with_residual=st.booleans(),
    in_place=st.booleans(),
    dtype=DTYPES,
    seed=st.integers(0, 99),
)
def test_sums_bias_and_residual(
    num_rows: int, with_bias: bool, with_residual: bool, in_place: bool, dtype: torch.dtype, seed: int
) -> None:
    """Equal to PyTorch to the last bit: a bfloat16 product is rounded before the residual is added."""
    sums = randn(num_rows, PANEL, seed=seed, dtype=torch.float32)
    bias = randn(PANEL if with_bias else 0, seed=seed + 1, dtype=dtype)
    result = randn(num_rows + 2, PANEL + 8, seed=seed + 2, dtype=dtype)
    residual = result if in_place else randn(num_rows + 2, PANEL + 8, seed=seed + 3, dtype=dtype)
    place = slice(1, num_rows + 1), slice(3, PANEL + 3)
    product = (sums + bias.float() if with_bias else sums).to(dtype)
    expected = result.clone()
    expected[place] = product + residual[place] if with_residual else product
    write(sums.numpy(), array_of(bias), array_of(residual), with_residual, array_of(result), 1, 3)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_no_number_stays_what_it_is(dtype: torch.dtype) -> None:
    sums = torch.tensor([[torch.nan, torch.inf, -torch.inf, 3.4e38] * (PANEL // 4)])
    # A NaN whose bits are all lost in bfloat16, and one that would overflow if it were rounded up.
    sums.view(torch.int32)[0, :2] = torch.tensor([0x7F800001, 0x7FFFFFFF])
    result = torch.empty(1, PANEL, dtype=dtype)
    write(sums.numpy(), array_of(result[0, :0]), array_of(result), False, array_of(result), 0, 0)
    assert torch.equal(result.isnan(), sums.isnan())
    assert torch.equal(result.nan_to_num(1), sums.to(dtype).nan_to_num(1))


@settings(max_examples=40, deadline=None)
@given(num_rows=st.integers(1, 9), dtype=DTYPES, scale=st.sampled_from([1, 30, 1e4]), seed=st.integers(0, 99))
def test_gates(num_rows: int, dtype: torch.dtype, scale: float, seed: int) -> None:
    gate_up = (randn(num_rows, 2 * PANEL, seed=seed, dtype=torch.float32) * scale).to(dtype)
    like, result = torch.empty(0, dtype=dtype), torch.empty(num_rows, PANEL)
    gate(gate_up.float().numpy(), array_of(like), result.numpy())
    expected = F.silu(gate_up[:, :PANEL]) * gate_up[:, PANEL:]
    rtol = 1e-5 if dtype == torch.float32 else 2**-6  # bfloat16 may be rounded the other way, twice
    torch.testing.assert_close(result.to(dtype), expected, rtol=rtol, atol=1e-30)
    assert torch.equal(result, result.to(dtype).float()), "all are numbers of the model's dtype"


def test_a_bfloat16_gate_is_rounded_before_it_is_multiplied() -> None:
    """As in PyTorch. The last bit of a float32 changes the rounding of one number in many thousands."""
    gate_up = randn(200, 2 * PANEL, seed=0, dtype=torch.bfloat16)
    result = torch.empty(200, PANEL)
    gate(gate_up.float().numpy(), array_of(gate_up), result.numpy())
    expected = F.silu(gate_up[:, :PANEL]) * gate_up[:, PANEL:]
    assert (result != expected.float()).sum() <= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("value", "expected"), [(np.inf, np.inf), (-1e30, 0.0), (0.0, 0.0), (np.nan, np.nan)]
)
def test_gates_at_their_ends(value: float, expected: float, dtype: torch.dtype) -> None:
    gate_up, result = np.ones((1, 2 * PANEL), np.float32), np.empty((1, PANEL), np.float32)
    gate_up[0, 5] = value
    gate(gate_up, array_of(torch.empty(0, dtype=dtype)), result)
    np.testing.assert_array_equal(result[0, 5], np.float32(expected))
    assert np.isfinite(np.delete(result, 5)).all()


@pytest.mark.parametrize("num_rows", [1, 7])
def test_bfloat16_as_float32(num_rows: int) -> None:
    source = randn(num_rows + 2, PANEL, seed=0, dtype=torch.bfloat16)
    result = torch.empty(num_rows, PANEL)
    widen(array_of(source), 2, result.numpy())
    assert torch.equal(result, source[2:].float())


@pytest.mark.parametrize("size", [1, 16, 1000])
def test_a_workspace_begins_at_a_cache_line(size: int) -> None:
    for _ in range(20):
        workspace = aligned(size)
        assert workspace.shape == (size,)
        assert workspace.ctypes.data % CACHE_LINE == 0
        workspace[:] = 1
