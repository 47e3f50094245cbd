"""Products with packed weights: what `F.linear` gives, the same for a row in any company."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from minipaged.cpu.products.panel import PANEL
from minipaged.cpu.products.panel_product import (
    can_pack,
    in_rows,
    is_packed,
    packed,
    packed_linear,
    packed_rows,
)
from minipaged.cpu.replace import use_cpu_kernels
from tests.model.dense import packed_logits
from tests.model.test_decoder import decoder_like, random_tokens
from tests.oracle import FAMILIES, Family, make_config, make_hf_model
from tests.torch_threads import torch_threads


@settings(max_examples=60, deadline=None)
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
    result = packed_linear(x, packed(weight), bias)
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert result.dtype == dtype
    assert result.shape == expected.shape
    rtol, atol = (0.0, 1e-3) if dtype == torch.float32 else (2**-8, 1e-3)  # bfloat16 rounds once
    assert torch.allclose(result.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    """To the last bit, also where a step is so large that its rows are computed in several goes, and whether
    panels are multiplied in pairs or not."""
    panels, x = packed(torch.randn(5 * PANEL, 700).to(dtype)), torch.randn(600, 700).to(dtype)
    together = packed_linear(x, panels, None)
    for first, last in ((0, 1), (7, 20), (13, 45), (400, 600)):
        assert torch.equal(packed_linear(x[first:last], panels, None), together[first:last])


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_any_number_of_threads(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    panels, x = packed(torch.randn(5 * PANEL, 70)), torch.randn(20, 70)
    expected = packed_linear(x, panels, None)
    with torch_threads(num_threads):
        assert torch.equal(packed_linear(x, panels, None), expected)


def test_packing_keeps_every_weight_and_rows_finds_them() -> None:
    weight = torch.randn(3 * PANEL, 7)
    panels = packed(weight)
    assert is_packed(panels)
    assert not is_packed(weight)
    assert torch.equal(in_rows(panels), weight)
    assert in_rows(weight) is weight
    ids = torch.tensor([0, 95, 31, 32, 31])
    assert torch.equal(packed_rows(ids, panels), weight[ids])


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((64, 5), torch.float32, True),
        ((64, 5), torch.bfloat16, True),
        ((64, 5), torch.float16, False),
        ((65, 5), torch.float32, False),
    ],
)
def test_what_can_be_packed(shape: tuple[int, int], dtype: torch.dtype, expected: bool) -> None:
    assert can_pack(torch.zeros(shape, dtype=dtype)) == expected


@pytest.mark.parametrize("x", [torch.zeros(2, 8), torch.zeros(2, 7, dtype=torch.bfloat16)])
def test_what_does_not_fit_is_refused(x: torch.Tensor) -> None:
    """Compiled code would read past the end."""
    with pytest.raises(ValueError, match="the panels are"):
        packed_linear(x, packed(torch.zeros(PANEL, 7)), None)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_model_gives_the_same_logits_and_still_tells_its_weights(family: Family, tied: bool) -> None:
    decoder = decoder_like(make_hf_model(make_config(family, vocab_size=256, tied=tied)))
    sequences = random_tokens(17, 1, 5)
    plain = packed_logits(decoder, sequences)
    weights = {name: view.clone() for name, view in decoder.weight_views().items()}
    could_be = [can_pack(weight) for weight in decoder.matrices()]
    use_cpu_kernels(decoder)
    assert [is_packed(weight) for weight in decoder.matrices()] == could_be
    assert is_packed(decoder.lm_head.weight)
    assert is_packed(decoder.embed_tokens) == tied
    use_cpu_kernels(decoder)  # what is packed stays as it is
    for fast, expected in zip(packed_logits(decoder, sequences), plain, strict=True):
        assert torch.allclose(fast, expected, rtol=0, atol=1e-5)
    for name, view in decoder.weight_views().items():
        assert torch.equal(view, weights[name]), name


@pytest.mark.parametrize("pays", [True, False])
def test_a_larger_model_is_packed_if_a_trial_says_so(pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.cpu.replace.TRIAL_BYTES", 0)
    monkeypatch.setattr("minipaged.cpu.replace.packing_pays", lambda weights, product: pays)
    decoder = decoder_like(make_hf_model(make_config("llama")))
    use_cpu_kernels(decoder)
    assert any(is_packed(weight) for weight in decoder.matrices()) == pays


def test_one_row_with_any_stride() -> None:
    """PyTorch calls a row of strides (1, 1) contiguous."""
    panels, x = packed(torch.randn(PANEL, 70)), torch.randn(70, 1)
    assert torch.equal(packed_linear(x.t(), panels, None), packed_linear(x.flatten()[None], panels, None))
