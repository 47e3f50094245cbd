"""Checks of exercise 4.4: a step's copies, in all layers."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch04.counts import BLOCK_SIZE
from minipaged.course.expect import Wrong
from minipaged.kv.copy_on_write import BlockCopy

if TYPE_CHECKING:
    from torch import Tensor


def _numbered_cache(num_layers: int = 3, num_blocks: int = 6) -> Tensor:
    """A cache in which every number is different."""
    import torch

    shape = (num_layers, 2, num_blocks, BLOCK_SIZE, 2, 3)
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def _origin(cache: Tensor, before: Tensor) -> list[str]:
    """For each block, the block whose contents it holds, or `?`."""
    found = []
    for block in range(cache.shape[2]):
        whose = [
            other
            for other in range(cache.shape[2])
            if bool((cache[:, :, block] == before[:, :, other]).all())
        ]
        found.append(str(whose[0]) if whose else "?")
    return found


def _expect_copied(code: ModuleType, copies: list[BlockCopy]) -> None:
    cache = _numbered_cache()
    before = cache.clone()
    code.copy_blocks(cache, copies)
    holds = list(range(cache.shape[2]))
    for copy in copies:
        holds[copy.target] = copy.source
    got = _origin(cache, before)
    pairs = ", ".join(f"{copy.source} → {copy.target}" for copy in copies)
    for layer in range(cache.shape[0]):
        for half, name in enumerate(("keys", "values")):
            wrong = [
                block
                for block, source in enumerate(holds)
                if not bool((cache[layer, half, block] == before[layer, half, source]).all())
            ]
            if wrong:
                raise Wrong(
                    case=f"copy_blocks(cache, copies) with {pairs or 'no copies'}",
                    expected=f"blocks 0 to 5 hold what was in {holds}",
                    got=f"what was in [{', '.join(got)}] (? is none of them)",
                    rule="in all layers, keys and values, and all copies at once: each target gets what "
                    f"its source held before. Wrong: the {name} of layer {layer}, in blocks {wrong}",
                )


@pytest.mark.exercise("4.4")
@pytest.mark.parametrize(
    "pairs", [[], [(1, 3)], [(1, 3), (4, 5)], [(1, 2), (1, 3), (1, 4)], [(1, 2), (2, 3)], [(1, 2), (2, 1)]]
)
def test_every_layer_is_copied_at_once(code: ModuleType, pairs: list[tuple[int, int]]) -> None:
    _expect_copied(code, [BlockCopy(*pair) for pair in pairs])


@pytest.mark.exercise("4.4")
@given(st.lists(st.integers(1, 5), max_size=5, unique=True), st.data())
def test_the_order_does_not_matter(code: ModuleType, targets: list[int], data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    _expect_copied(code, [BlockCopy(*pair) for pair in zip(sources, targets, strict=True)])
