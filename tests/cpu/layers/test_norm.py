"""The norm after the last layer gives PyTorch's results."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.cpu.layers.norm import CompiledNorm
from minipaged.model.layer import RMSNorm
from tests.cpu.layers.test_norm_and_rotation import near, randn
from tests.torch_threads import torch_threads


def norm_of(weight: torch.Tensor, eps: float) -> RMSNorm:
    norm = RMSNorm(len(weight), eps, dtype=weight.dtype, device=weight.device)
    norm.weight.copy_(weight)
    return norm


DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(0, 40),
    size=st.integers(1, 600),
    eps=st.sampled_from([0.0, 1e-6, 1e-5, 0.1]),
    strided=st.booleans(),
    dtype=DTYPES,
)
def test_norm(num_rows: int, size: int, eps: float, strided: bool, dtype: torch.dtype) -> None:
    x = randn(num_rows, size + 3 * strided, seed=num_rows, dtype=dtype)[:, :size]
    weight = randn(size, seed=size, dtype=dtype)
    norm = norm_of(weight, eps)
    result = CompiledNorm(norm)(x)
    assert result.dtype == dtype
    assert result.shape == x.shape
    assert near(result, norm(x))


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_row_is_the_same_in_any_company(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    x, weight = randn(50, 96, seed=0, dtype=torch.float32), randn(96, seed=1, dtype=torch.float32)
    norm = CompiledNorm(norm_of(weight, 1e-6))
    alone = torch.cat([norm(row[None]) for row in x])
    with torch_threads(num_threads):
        assert torch.equal(norm(x), alone)


@pytest.mark.parametrize(
    "x", [torch.zeros(2, 8), torch.zeros(7), torch.zeros(2, 7, dtype=torch.bfloat16), torch.zeros(1, 2, 7)]
)
def test_what_does_not_fit_is_refused(x: torch.Tensor) -> None:
    """Compiled code would read past the end."""
    with pytest.raises(ValueError, match="the weight"):
        CompiledNorm(norm_of(torch.zeros(7), 1e-6))(x)
