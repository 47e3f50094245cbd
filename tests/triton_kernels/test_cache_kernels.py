"""write_kv and copy_blocks in Triton do the same as write_kv and copy_blocks in kv/cache.py."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minipaged.kv import cache
from minipaged.kv.cache import BlockCopy, KVCache
from minipaged.triton_kernels import cache as triton_cache
from tests.triton_kernels.steps import DEVICE

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


def make_cache(
    num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> KVCache:
    made = KVCache(
        num_layers=3,
        num_blocks=num_blocks,
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=dtype,
        device=DEVICE,
    )
    made.data.normal_(generator=torch.Generator(DEVICE).manual_seed(0))
    return made


@settings(max_examples=25, deadline=None)
@given(
    num_tokens=st.integers(0, 6),
    block_size=st.sampled_from([1, 2, 5, 16]),
    num_kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([16, 64, 80, 96, 128, 256]),
    dtype=DTYPES,
    seed=st.integers(0, 99),
)
def test_tokens_go_to_their_slots_and_padding_nowhere(
    num_tokens: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, seed: int
) -> None:
    kv_layer = make_cache(8, block_size, num_kv_heads, head_dim, dtype).layers[1]
    expected = kv_layer.clone()
    key, value = torch.randn(2, num_tokens, num_kv_heads, head_dim, device=DEVICE).to(dtype).unbind(0)
    shuffle = random.Random(seed)
    slots = torch.tensor(shuffle.sample(range(8 * block_size), num_tokens), dtype=torch.int64, device=DEVICE)
    padding = torch.tensor(
        [shuffle.random() < 0.3 for _ in range(num_tokens)], dtype=torch.bool, device=DEVICE
    )
    cache.write_kv(expected, key[~padding], value[~padding], slots[~padding])
    triton_cache.write_kv(kv_layer, key, value, slots.masked_fill(padding, -1))
    assert torch.equal(kv_layer, expected)


def test_keys_and_values_may_be_strided() -> None:
    """Keys and values are usually views into the output of one fused projection."""
    kv_layer = make_cache(4, 4, 2, 64, torch.float32).layers[0]
    expected = kv_layer.clone()
    fused = torch.randn(3, 6, 64, device=DEVICE)
    key, value = fused[:, 2:4], fused[:, 4:]
    slots = torch.tensor([7, 4, 12], device=DEVICE)
    cache.write_kv(expected, key, value, slots)
    triton_cache.write_kv(kv_layer, key, value, slots)
    assert torch.equal(kv_layer, expected)


@settings(max_examples=15, deadline=None)
@example(sources=[1, 1, 1], targets=[2, 3, 4], head_dim=64, dtype=torch.float32)
@example(sources=[1, 2, 3], targets=[2, 3, 4], head_dim=64, dtype=torch.float32)  # 2 and 3 are in both
@example(sources=[1, 2], targets=[2, 1], head_dim=64, dtype=torch.float32)  # two blocks change places
@given(
    sources=st.lists(st.integers(0, 7), max_size=5),
    targets=st.permutations(range(1, 8)),
    head_dim=st.sampled_from([16, 80, 256]),
    dtype=DTYPES,
)
def test_all_sources_are_read_before_a_target_is_written(
    sources: list[int], targets: list[int], head_dim: int, dtype: torch.dtype
) -> None:
    copies = [BlockCopy(*pair) for pair in zip(sources, targets, strict=False)]
    actual, expected = (make_cache(8, 16, 3, head_dim, dtype) for _ in range(2))
    expected.copy_blocks(copies)
    triton_cache.copy_blocks(actual.data, copies)
    assert torch.equal(actual.data, expected.data)


@pytest.mark.parametrize("block_size", [1, 7, 128])
def test_blocks_of_less_and_of_more_than_one_tile(block_size: int) -> None:
    actual, expected = (make_cache(4, block_size, 1, 64, torch.float32) for _ in range(2))
    expected.copy_blocks([BlockCopy(1, 3)])
    triton_cache.copy_blocks(actual.data, [BlockCopy(1, 3)])
    assert torch.equal(actual.data, expected.data)


def test_a_launch_has_room_for_all_copies_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first dimension of a grid may be above 65,535."""
    grids: list[tuple[int, ...]] = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *arguments, **options: None

    monkeypatch.setattr(triton_cache, "copy_kernel", Kernel())
    many = 70_000
    blocks = make_cache(2 * many, 1, 1, 1, torch.float16)
    triton_cache.copy_blocks(blocks.data, [BlockCopy(i, many + i) for i in range(many)])
    [(first, *others)] = grids
    assert first == many
    assert max(others) <= 65_535
