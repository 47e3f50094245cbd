"""The decoder's small loops, compared with PyTorch in float32 and in bfloat16."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged.cpu.arithmetic.numbers import kept, number
from minipaged.cpu.compiler.compiled import compiled

CPU = torch.device("cpu")
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def array_of(tensor: Tensor) -> np.ndarray:
    """The same memory; a bfloat16 tensor as its bits."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def randn(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(result: Tensor, expected: Tensor) -> bool:
    """Equal except for the last bits: a sum in another order may round to the next bfloat16.

    The next bfloat16 is at most 2⁻⁷ away. Times the weight, it is rounded once more, by at most 2⁻⁸.
    """
    rtol = 1e-5 if result.dtype == torch.float32 else 2**-7 + 2**-8
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
