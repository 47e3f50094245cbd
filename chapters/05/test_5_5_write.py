"""Exercise 5.5: writing to the cache."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from minipaged.course.ch05.cases import sparse_cache
from minipaged.course.ch05.rung import DEVICE
from minipaged.course.expect import expect


def _expect_written(
    code: ModuleType,
    slots: list[int],
    what: str,
    *,
    sizes: tuple[int, int, int] = (4, 2, 8),
    key_and_value: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Write tokens into an empty cache of 6 blocks. Look at every slot, and at the memory around the cache.

    Args:
        sizes: block_size, num_kv_heads and head_dim.
    """
    block_size, *shape = sizes
    if key_and_value is None:
        both = torch.arange(1.0, 2 * len(slots) * shape[0] * shape[1] + 1)
        key, value = both.view(2, len(slots), *shape)
    else:
        key, value = key_and_value
    # The cache is the middle of a larger tensor, so that the process survives a wrong kernel.
    whole = torch.zeros(2, 36, block_size, *shape, device=DEVICE)
    cache = whole[:, 3:9]
    code.write_kv(cache, key.to(DEVICE), value.to(DEVICE), torch.tensor(slots, dtype=torch.int64).to(DEVICE))
    case = f"write_kv into slots {slots}: {what}"
    outside = torch.cat([whole[:, :3], whole[:, 9:]], dim=1)
    expect(
        bool((outside == 0).all()),
        case=f"the memory around the cache; {case}",
        rule="slot s is slot s % block_size of block s // block_size, the strides are those of the cache, "
        "and a token with slot −1 is not stored",
        expected="unchanged",
        got=f"{int((outside != 0).sum())} numbers written outside of the cache",
    )
    for name, stored, given in zip(("key", "value"), cache.cpu().flatten(1, 2), (key, value), strict=True):
        for slot in range(6 * block_size):
            token = slots.index(slot) if slot in slots else None
            wanted = torch.zeros(*shape) if token is None else given[token]
            expect(
                torch.equal(stored[slot], wanted),
                case=f"the {name} in slot {slot}; {case}",
                rule="no token has this slot, so it does not change. A slot of −1 is padding"
                if token is None
                else f"the slot holds the {name} of token {token}, all heads of it",
                expected=f"{wanted.flatten().tolist()}",
                got=f"{stored[slot].flatten().tolist()}",
            )


@pytest.mark.exercise("5.5")
@pytest.mark.parametrize(
    ("what", "slots"),
    [
        ("one token, block 0", [2]),
        ("one token, block 1", [5]),
        ("three tokens in a row", [6, 7, 8]),
        ("tokens of several sequences", [22, 3, 9]),
        ("padding at the end", [7, -1, -1]),
        ("padding first", [-1, 7]),
        ("no token", []),
    ],
)
def test_slots(code: ModuleType, what: str, slots: list[int]) -> None:
    _expect_written(code, slots, what)


@pytest.mark.exercise("5.5")
@pytest.mark.parametrize("sizes", [(4, 1, 8), (4, 3, 8), (3, 2, 12)])
def test_sizes(code: ModuleType, sizes: tuple[int, int, int]) -> None:
    what = f"blocks of {sizes[0]}, {sizes[1]} KV heads of {sizes[2]} numbers"
    _expect_written(code, [1, 8], what, sizes=sizes)


@pytest.mark.exercise("5.5")
def test_views_of_a_larger_tensor(code: ModuleType) -> None:
    """The engine computes queries, keys and values in one product, so keys and values are parts of it."""
    product = torch.arange(1.0, 3 * 7 * 8 + 1).view(3, 7, 8)  # [T, 3 query heads + 2 keys + 2 values, dim]
    key, value = product[:, 3:5], product[:, 5:].clone()
    _expect_written(code, [4, 9, 2], "keys are part of a larger tensor", key_and_value=(key, value))
    value = product[:, 5:].transpose(0, 1).contiguous().transpose(0, 1)
    _expect_written(code, [4, 9, 2], "values have other strides", key_and_value=(key, value))


@pytest.mark.exercise("5.5")
@pytest.mark.skipif(DEVICE.type == "cuda", reason="a GPU has no memory that is reserved and not used")
def test_far_blocks(code: ModuleType) -> None:
    cache = sparse_cache(2**28, 9, (4, 1, 8))
    token = torch.arange(1.0, 9.0).view(1, 1, 8)
    code.write_kv(cache, token, -token, torch.tensor([33]))
    expect(
        torch.equal(cache[0, 8, 1], token[0]) and torch.equal(cache[1, 8, 1], -token[0]),
        case="write_kv into slot 33, in block 8, which begins 2³¹ numbers after block 0",
        rule="a product past 2³¹ needs 64 bits before the multiplication: the slot is an int64, keep it so",
        expected=f"{token.flatten().tolist()}",
        got=f"{cache[0, 8, 1].flatten().tolist()}",
    )
