"""The memory of swapped blocks: of exactly the size that is needed, pinned for a GPU, in few copies."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged.errors import ConfigError
from minipaged.kv import swap_cache
from minipaged.kv.cache import KVCache
from minipaged.kv.swap import BlockSwap
from minipaged.kv.swap_cache import SwapCache
from tests.fake_cuda import FakeCuda, fake_cuda

BLOCKS, CPU_BLOCKS = 9, 7
ANY_BLOCKS, ANY_CPU_BLOCKS = st.permutations(range(BLOCKS)), st.permutations(range(CPU_BLOCKS))


def make_cache(device: torch.device, num_blocks: int = BLOCKS) -> KVCache:
    cache = KVCache(
        num_layers=2,
        num_blocks=num_blocks,
        block_size=2,
        num_kv_heads=1,
        head_dim=4,
        dtype=torch.float32,
        device=device,
    )
    cache.data.copy_(torch.arange(cache.data.numel(), dtype=torch.float32).view(cache.data.shape))
    return cache


@given(ANY_BLOCKS, ANY_CPU_BLOCKS, ANY_BLOCKS, st.integers(1, CPU_BLOCKS), st.integers(1, 4))
def test_blocks_go_to_their_places_and_others_stay(
    blocks: list[int],
    cpu_blocks: list[int],
    new_blocks: list[int],
    count: int,
    blocks_at_once: int,
) -> None:
    """In parts of any size, in any order."""
    cache = make_cache(torch.device("cpu"))
    before = cache.data.clone()
    space = SwapCache(cache, CPU_BLOCKS)
    space.data.fill_(-1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(swap_cache, "BYTES_AT_ONCE", blocks_at_once * space.data[0].nbytes)
        space.copy_out([BlockSwap(*pair) for pair in zip(blocks[:count], cpu_blocks[:count], strict=True)])
        expected = torch.full_like(space.data, -1)
        expected[cpu_blocks[:count]] = before[:, :, blocks[:count]].movedim(2, 0)
        assert torch.equal(space.data, expected)
        space.copy_in([BlockSwap(*pair) for pair in zip(new_blocks[:count], cpu_blocks[:count], strict=True)])
    back = before.clone()
    back[:, :, new_blocks[:count]] = before[:, :, blocks[:count]]
    assert torch.equal(cache.data, back)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")
class TestOnAGpu:
    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
        with fake_cuda(monkeypatch) as (machine, _):
            yield machine

    def test_no_more_is_pinned_than_is_needed_and_no_longer(self, machine: FakeCuda) -> None:
        cache = make_cache(torch.device("cuda", 1))
        space = SwapCache(cache, CPU_BLOCKS)
        [pinned] = machine.registered
        assert len(pinned) == space.data.nbytes == CPU_BLOCKS * 2 * 2 * 2 * 4 * 4
        assert pinned.start == space.data.data_ptr()
        del space
        gc.collect()
        assert machine.registered == []

    def test_neighbours_are_one_copy(self, machine: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        """That it is not waited for, and pinned at both ends, is what the device checks."""
        cache = make_cache(torch.device("cuda", 1))
        space = SwapCache(cache, CPU_BLOCKS)
        space.copy_out([BlockSwap(3, 5), BlockSwap(1, 2), BlockSwap(8, 3), BlockSwap(4, 6)])
        runs = list(swap_cache._runs(sorted([BlockSwap(3, 5), BlockSwap(1, 2), BlockSwap(8, 3)], key=place)))
        assert runs == [(slice(2, 4), slice(0, 2)), (slice(5, 6), slice(2, 3))]
        space.copy_in([BlockSwap(7, 5)])
        assert torch.equal(cache.data[:, :, 7].cpu(), cache.data[:, :, 3].cpu())

    def test_nothing_is_pinned_for_no_blocks(self, machine: FakeCuda) -> None:
        SwapCache(make_cache(torch.device("cuda", 1)), 0)
        assert machine.registered == []

    def test_a_driver_that_refuses(self, machine: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda.cudart(), "cudaHostRegister", lambda *given: 2)
        with pytest.raises(ConfigError, match=r"does not pin 896 bytes .* set a smaller num_cpu_blocks"):
            SwapCache(make_cache(torch.device("cuda", 1)), CPU_BLOCKS)


def place(swap: BlockSwap) -> int:
    return swap.cpu_block
