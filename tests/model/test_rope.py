"""Rotary embedding: the properties that attention and the cache rely on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.model.config import RopeConfig
from minipaged.model.rope import RotaryEmbedding, frequencies, rotate

CPU = torch.device("cpu")


def rotated(x: torch.Tensor, position: int, head_dim: int) -> torch.Tensor:
    cos, sin = RotaryEmbedding(RopeConfig(), head_dim, CPU)(torch.tensor([position]), torch.float32)
    return rotate(x[None, None], cos, sin)[0, 0]


@settings(max_examples=30, deadline=None)
@given(head_dim=st.sampled_from([2, 32, 80]), near=st.integers(0, 500), apart=st.integers(0, 500))
def test_scores_depend_on_the_distance_alone(head_dim: int, near: int, apart: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, head_dim, generator=generator)
    at_start = rotated(q, apart, head_dim) @ rotated(k, 0, head_dim)
    later = rotated(q, near + apart, head_dim) @ rotated(k, near, head_dim)
    assert later.item() == pytest.approx(at_start.item(), abs=1e-3)


def test_position_zero_changes_nothing_and_lengths_stay() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rotated(x, 0, 64), x)
    assert rotated(x, 1234, 64).norm().item() == pytest.approx(x.norm().item(), rel=1e-5)


def test_angles_are_exact_far_out_in_half_precision() -> None:
    cos, _ = RotaryEmbedding(RopeConfig(), 4, CPU)(torch.tensor([100_001]), torch.bfloat16)
    expected = torch.tensor(100_001.0, dtype=torch.float64).cos()
    assert cos[0, 0, 0].item() == pytest.approx(expected.item(), abs=1e-2)


def test_linear_scaling_stretches_positions() -> None:
    plain = RotaryEmbedding(RopeConfig(), 32, CPU)(torch.tensor([10]), torch.float32)
    stretched = RotaryEmbedding(RopeConfig(scaling="linear", factor=4.0), 32, CPU)(
        torch.tensor([40]), torch.float32
    )
    assert torch.allclose(plain[0], stretched[0], atol=1e-5)


def test_llama3_scaling_keeps_fast_pairs_and_divides_slow_ones() -> None:
    rope = RopeConfig(theta=500_000.0, scaling="llama3", factor=8.0, original_max_position_embeddings=8192)
    ratio = frequencies(RopeConfig(theta=500_000.0), 128) / frequencies(rope, 128)
    assert ratio[0].item() == pytest.approx(1.0)
    assert ratio[-1].item() == pytest.approx(8.0)
    assert bool((ratio[1:] >= ratio[:-1] - 1e-5).all())


def test_divisors_are_llama3_scaling_worked_out() -> None:
    rope = RopeConfig(theta=500_000.0, scaling="llama3", factor=32.0, original_max_position_embeddings=8192)
    wanted = frequencies(rope, 64)
    divisors = frequencies(RopeConfig(theta=500_000.0), 64) / wanted
    given_divisors = RopeConfig(theta=500_000.0, scaling="divisors", divisors=tuple(divisors.tolist()))
    assert torch.allclose(frequencies(given_divisors, 64), wanted, rtol=1e-6)
