"""Products with weights in panels give `F.linear`'s results, and a row's result depends on no other row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from minipaged.cpu.products.panel_linear import (
    PanelEmbedding,
    PanelLinear,
    fits_panels,
    in_panels,
    in_rows,
    panel_linear,
)
from minipaged.cpu.products.tile import PANEL
from tests.long_tests import examples
from tests.torch_threads import torch_threads


@settings(max_examples=examples(60), deadline=None)
@given(
    num_rows=st.integers(0, 40),
    num_panels=st.integers(1, 5),
    width=st.integers(1, 900),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    with_bias=st.booleans(),
    strided=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_what_linear_gives(
    num_rows: int, num_panels: int, width: int, dtype: torch.dtype, with_bias: bool, strided: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(num_panels * PANEL, width, generator=generator).to(dtype)
    x = torch.randn(num_rows, width + 3 * strided, generator=generator).to(dtype)[:, :width]
    bias = torch.randn(len(weight), generator=generator).to(dtype) if with_bias else None
    result = panel_linear(x, in_panels(weight), bias)
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert result.dtype == dtype
    assert result.shape == expected.shape
    rtol, atol = (0.0, 1e-3) if dtype == torch.float32 else (2**-8, 1e-3)  # bfloat16 rounds once
    assert torch.allclose(result.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    """Equal to the last bit, with panels in pairs or single.

    The larger steps have so many rows that they are computed in several rounds.
    """
    panels, x = in_panels(torch.randn(5 * PANEL, 700).to(dtype)), torch.randn(600, 700).to(dtype)
    together = panel_linear(x, panels, None)
    for first, last in ((0, 1), (7, 20), (13, 45), (400, 600)):
        assert torch.equal(panel_linear(x[first:last], panels, None), together[first:last])


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_any_number_of_threads(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    panels, x = in_panels(torch.randn(5 * PANEL, 70)), torch.randn(20, 70)
    expected = panel_linear(x, panels, None)
    with torch_threads(num_threads):
        assert torch.equal(panel_linear(x, panels, None), expected)


def test_panels_keep_every_weight() -> None:
    weight = torch.randn(3 * PANEL, 7)
    panels = in_panels(weight)
    assert panels.shape == (3, 7, PANEL)
    assert torch.equal(in_rows(panels), weight)


def test_modules_of_panels() -> None:
    weight, bias = torch.randn(3 * PANEL, 7), torch.randn(3 * PANEL)
    panels = nn.Parameter(in_panels(weight), requires_grad=False)
    ids = torch.tensor([0, 95, 31, 32, 31])
    assert torch.equal(PanelEmbedding(panels)(ids), weight[ids])
    x = torch.randn(5, 7)
    expected = F.linear(x, weight, bias)
    assert torch.allclose(PanelLinear(panels, nn.Parameter(bias))(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((64, 5), torch.float32, True),
        ((64, 5), torch.bfloat16, True),
        ((64, 5), torch.float16, False),
        ((65, 5), torch.float32, False),
    ],
)
def test_what_fits_panels(shape: tuple[int, int], dtype: torch.dtype, expected: bool) -> None:
    assert fits_panels(torch.zeros(shape, dtype=dtype)) == expected


@pytest.mark.parametrize("x", [torch.zeros(2, 8), torch.zeros(2, 7, dtype=torch.bfloat16)])
def test_what_does_not_fit_is_refused(x: torch.Tensor) -> None:
    """Compiled code would read past the end."""
    with pytest.raises(ValueError, match="the panels are"):
        panel_linear(x, in_panels(torch.zeros(PANEL, 7)), None)


def test_one_row_with_any_stride() -> None:
    """PyTorch calls a row of strides (1, 1) contiguous."""
    panels, x = in_panels(torch.randn(PANEL, 70)), torch.randn(70, 1)
    assert torch.equal(panel_linear(x.t(), panels, None), panel_linear(x.flatten()[None], panels, None))
