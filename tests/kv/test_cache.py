"""The KV cache's tensors: where a token's key and value are stored, and how blocks are copied."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged.kv.cache import BlockCopy, KVCache, write_kv


def make_cache(
    num_layers: int = 2, num_blocks: int = 6, block_size: int = 4, dtype: torch.dtype = torch.float32
) -> KVCache:
    return KVCache(
        num_layers=num_layers,
        num_blocks=num_blocks,
        block_size=block_size,
        num_kv_heads=2,
        head_dim=3,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def numbered(cache: KVCache) -> Tensor:
    """Fill the cache with numbers that are all different. Returns a copy of the cache."""
    cache.data.copy_(torch.arange(cache.data.numel()).view(cache.data.shape))
    return cache.data.clone()


def test_shape_and_size() -> None:
    cache = make_cache(dtype=torch.bfloat16)
    assert cache.data.shape == (2, 2, 6, 4, 2, 3)
    assert cache.data.dtype == torch.bfloat16
    assert [layer.shape for layer in cache.layers] == [(2, 6, 4, 2, 3)] * 2
    # 2 layers x K and V x 6 blocks x 4 tokens x 2 heads x 3 numbers x 2 bytes


def test_begins_finite() -> None:
    """The null block is read as padding with weight 0, and 0 times NaN would be NaN."""
    assert not make_cache().data[:, :, 0].any(), "the null block is read as padding"


def test_layers_are_views() -> None:
    cache = make_cache()
    cache.data.zero_()
    cache.layers[1].fill_(7.0)
    assert (cache.data[1] == 7.0).all()
    assert not cache.data[0].any()


@settings(max_examples=40, deadline=None)
@given(slots=st.lists(st.integers(4, 23), min_size=1, max_size=20, unique=True), seed=st.integers(0, 999))
def test_write_kv_against_a_loop(slots: list[int], seed: int) -> None:
    cache = make_cache()
    expected = numbered(cache)
    generator = torch.Generator().manual_seed(seed)
    key, value = torch.randn(2, len(slots), 2, 3, generator=generator)
    write_kv(cache.layers[1], key, value, torch.tensor(slots))
    for i, slot in enumerate(slots):
        expected[1, 0, slot // 4, slot % 4] = key[i]
        expected[1, 1, slot // 4, slot % 4] = value[i]
    assert torch.equal(cache.data, expected), "every slot that was not named keeps what it held"


def test_write_kv_takes_strided_keys_and_values() -> None:
    """Keys and values usually are views into one fused projection."""
    cache = make_cache()
    fused = torch.randn(3, 12)
    key, value = (part.view(3, 2, 3) for part in fused.split(6, dim=1))
    assert not key.is_contiguous()
    write_kv(cache.layers[0], key, value, torch.tensor([9, 4, 23]))
    stored = cache.layers[0].reshape(2, 24, 2, 3)[:, [9, 4, 23]]
    assert torch.equal(stored, torch.stack([key, value]))


@pytest.mark.parametrize("slot", [24, 1000])
def test_write_kv_beyond_the_cache_is_an_error(slot: int) -> None:
    cache = make_cache()
    with pytest.raises(IndexError):
        write_kv(cache.layers[0], torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.tensor([slot]))


def test_copy_blocks_in_all_layers() -> None:
    cache = make_cache(num_layers=3)
    before = numbered(cache)
    cache.copy_blocks([BlockCopy(source=2, target=5), BlockCopy(source=1, target=3)])
    expected = before.clone()
    expected[:, :, 5] = before[:, :, 2]
    expected[:, :, 3] = before[:, :, 1]
    assert torch.equal(cache.data, expected)


def test_no_copies() -> None:
    cache = make_cache()
    before = numbered(cache)
    cache.copy_blocks([])
    assert torch.equal(cache.data, before)


def test_one_source_for_many() -> None:
    cache = make_cache()
    before = numbered(cache)
    cache.copy_blocks([BlockCopy(1, target) for target in (2, 3, 4)])
    for target in (2, 3, 4):
        assert torch.equal(cache.data[:, :, target], before[:, :, 1])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_copies_do_not_depend_on_their_order(data: st.DataObject) -> None:
    """A block may be the source of one copy and the target of another, even in a ring.

    All sources are read before any target is written.
    """
    cache = make_cache()
    before = numbered(cache)
    targets = data.draw(st.lists(st.integers(1, 5), min_size=1, unique=True))
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    copies = [BlockCopy(s, t) for s, t in zip(sources, targets, strict=True)]
    cache.copy_blocks(copies)
    for copy in copies:
        assert torch.equal(cache.data[:, :, copy.target], before[:, :, copy.source])
    untouched = [b for b in range(6) if b not in targets]
    assert torch.equal(cache.data[:, :, untouched], before[:, :, untouched])
    cache.data.copy_(before)
    cache.copy_blocks(data.draw(st.permutations(copies)))
    for copy in copies:
        assert torch.equal(cache.data[:, :, copy.target], before[:, :, copy.source])
