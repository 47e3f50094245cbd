"""cpu_write_kv writes the same as write_kv, and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.cpu.attention.cache_writes import cpu_write_kv
from minipaged.kv.cache import write_kv


@settings(max_examples=60, deadline=None)
@given(
    slots=st.lists(st.integers(0, 19), max_size=12, unique=True),
    num_heads=st.integers(1, 3),
    head_dim=st.integers(1, 9),
    strided=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_like_the_plain_one(
    slots: list[int], num_heads: int, head_dim: int, strided: bool, dtype: torch.dtype
) -> None:
    qkv = torch.randn(len(slots), 2 * num_heads + strided, head_dim).to(dtype)
    key, value = qkv[:, :num_heads], qkv[:, num_heads : 2 * num_heads]
    before = torch.randn(2, 5, 4, num_heads, head_dim).to(dtype)
    expected, result = before.clone(), before.clone()
    where = torch.tensor(slots, dtype=torch.int64)
    write_kv(expected, key, value, where)
    cpu_write_kv(result, key, value, where)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("slot", [-1, 20, 10**12])
def test_a_slot_that_is_not_there(slot: int) -> None:
    kv_layer = torch.zeros(2, 5, 4, 1, 8)
    ones = torch.ones(3, 1, 8)
    with pytest.raises(IndexError, match=f"slot {slot} of token 1 "):
        cpu_write_kv(kv_layer, ones, ones, torch.tensor([3, slot, 4]))
    assert float(kv_layer.sum()) == 2 * 2 * 8  # the keys and values of the other tokens, in their own slots


def test_many_tokens_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    kv_layer, new = torch.zeros(2, 100, 16, 2, 8), torch.randn(2, 1600, 2, 8)
    where = torch.randperm(1600)
    cpu_write_kv(kv_layer, new[0], new[1], where)
    assert torch.equal(kv_layer.flatten(1, 2)[:, where], new)


@pytest.mark.parametrize(
    ("key", "value", "num_slots"),
    [
        ((3, 1, 8), (3, 1, 8), 2),
        ((3, 1, 8), (2, 1, 8), 3),
        ((3, 2, 8), (3, 2, 8), 3),
        ((3, 1, 4), (3, 1, 8), 3),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    key: tuple[int, ...], value: tuple[int, ...], num_slots: int
) -> None:
    """As PyTorch does. The loop would read and write outside the tensors."""
    kv_layer = torch.zeros(2, 5, 4, 1, 8)
    with pytest.raises((IndexError, RuntimeError)):
        cpu_write_kv(kv_layer, torch.ones(key), torch.ones(value), torch.arange(num_slots))


def test_a_cache_that_is_a_view() -> None:
    whole = torch.zeros(2, 5, 4, 2, 8)
    ones = torch.ones(3, 1, 8)
    cpu_write_kv(whole[:, :, :, :1], ones, ones, torch.tensor([3, 0, 19]))
    assert float(whole[..., 0, :].sum()) == 2 * 3 * 8
    assert float(whole[..., 1, :].sum()) == 0
