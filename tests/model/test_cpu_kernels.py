"""The decoder's kernels for a CPU against the plain ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.model.config import RopeConfig
from minipaged.model.cpu_kernels import cpu_gate, cpu_rms_norm, cpu_rotate_heads, use_cpu_kernels
from minipaged.model.kernels import gate, rms_norm, rotate_heads
from minipaged.model.rope import RotaryEmbedding
from tests.model.dense import packed_logits
from tests.model.test_decoder import decoder_like, random_tokens
from tests.oracle import FAMILIES, Family, make_config, make_hf_model

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), max_size=2),
    size=st.integers(1, 70),
    dtype=DTYPES,
    strided=st.booleans(),
    seed=st.integers(0, 99),
)
def test_norm(shape: list[int], size: int, dtype: torch.dtype, strided: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, 3, size, generator=generator).to(dtype)
    if strided:
        x = x[..., :2, :]
    weight = torch.randn(size, generator=generator).to(dtype)
    before = x.clone()
    result = cpu_rms_norm(x, weight, 1e-5)
    expected = rms_norm(x, weight, 1e-5)
    assert result.dtype == dtype
    assert torch.allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(x, before)


def test_norm_of_zeros_and_of_nothing() -> None:
    weight = torch.ones(8)
    assert torch.equal(cpu_rms_norm(torch.zeros(2, 8), weight, 1e-6), torch.zeros(2, 8))
    assert cpu_rms_norm(torch.zeros(0, 8), weight, 1e-6).shape == (0, 8)


def test_a_nan_stays_in_its_row() -> None:
    x = torch.randn(3, 16)
    x[1, 5] = torch.nan
    result = cpu_rms_norm(x, torch.ones(16), 1e-6)
    assert result[1].isnan().all()
    assert not result[[0, 2]].isnan().any()


@settings(max_examples=40, deadline=None)
@given(
    num_tokens=st.integers(0, 6),
    num_heads=st.integers(1, 9),
    data=st.data(),
    head_dim=st.sampled_from([2, 32, 64, 80, 128]),
    dtype=DTYPES,
    strided=st.booleans(),
)
def test_rotation(
    num_tokens: int, num_heads: int, data: st.DataObject, head_dim: int, dtype: torch.dtype, strided: bool
) -> None:
    count = data.draw(st.integers(0, num_heads))
    heads = torch.randn(num_tokens, num_heads + strided, head_dim).to(dtype)[:, :num_heads]
    positions = torch.randint(0, 5000, (num_tokens,))
    cos, sin = RotaryEmbedding(RopeConfig(), head_dim, torch.device("cpu"))(positions, dtype)
    expected = rotate_heads(heads, count, cos, sin)
    rest = heads[:, count:].clone()
    result = cpu_rotate_heads(heads, count, cos, sin)
    assert result.shape == (num_tokens, count, head_dim)
    assert torch.allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(heads[:, count:], rest)  # the values, which are not turned


@settings(max_examples=40, deadline=None)
@given(num_rows=st.integers(0, 5), size=st.integers(1, 70), dtype=DTYPES, scale=st.sampled_from([1, 30, 1e4]))
def test_gate(num_rows: int, size: int, dtype: torch.dtype, scale: float) -> None:
    gate_up = (torch.randn(num_rows, 2 * size) * scale).to(dtype)
    before = gate_up.clone()
    result, expected = cpu_gate(gate_up), gate(gate_up)
    assert result.dtype == dtype
    assert torch.allclose(result, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert torch.equal(gate_up, before)


def test_gates_that_are_no_numbers() -> None:
    gates = torch.tensor([torch.nan, torch.inf, -1e30, 0.0])
    result = cpu_gate(torch.cat((gates, torch.ones(4)))[None])
    assert torch.equal(result.isnan(), torch.tensor([[True, False, False, False]]))
    assert result[0, 1:].tolist() == [torch.inf, 0.0, 0.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_gives_the_same_logits(family: Family) -> None:
    hf = make_hf_model(make_config(family))
    decoder = decoder_like(hf)
    sequences = random_tokens(17, 1, 5)
    plain = packed_logits(decoder, sequences)
    use_cpu_kernels(decoder)
    for fast, expected in zip(packed_logits(decoder, sequences), plain, strict=True):
        assert torch.allclose(fast, expected, rtol=0, atol=1e-5)


def test_many_rows_on_several_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        x, weight = torch.randn(700, 64), torch.randn(64)
        assert torch.allclose(cpu_rms_norm(x, weight, 1e-5), rms_norm(x, weight, 1e-5), atol=1e-5)
        assert torch.allclose(cpu_gate(x), gate(x), atol=1e-5)
        heads = torch.randn(700, 4, 16)
        cos, sin = RotaryEmbedding(RopeConfig(), 16, torch.device("cpu"))(torch.arange(700), torch.float32)
        expected = rotate_heads(heads, 3, cos, sin)
        assert torch.allclose(cpu_rotate_heads(heads, 3, cos, sin), expected, atol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_what_the_loops_are_not_made_for_goes_to_the_plain_ones() -> None:
    x, weight = torch.randn(3, 16), torch.randn(16)
    assert torch.equal(cpu_rms_norm(x, weight.bfloat16(), 1e-5), rms_norm(x, weight.bfloat16(), 1e-5))
    heads, cos = torch.randn(3, 2, 8), torch.randn(1, 1, 4)  # one position for all
    assert torch.equal(cpu_rotate_heads(heads, 2, cos, cos), rotate_heads(heads, 2, cos, cos))
