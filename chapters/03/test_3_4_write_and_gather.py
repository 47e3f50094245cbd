"""Checks of exercise 3.4: keys and values into blocks, and out of them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minipaged.course.ch03.step import shape_of
from minipaged.course.expect import expect, expect_equal, kind_of, show

BLOCK_SIZE, NUM_BLOCKS = 4, 6
NUM_SLOTS = BLOCK_SIZE * NUM_BLOCKS


def _numbered_layer() -> Tensor:
    """Slot i holds keys near i, and values near 1000 + i. All numbers are different."""
    parts = torch.arange(2.0)[:, None, None, None] * 1000  # [2, 1, 1, 1]
    slots = torch.arange(float(NUM_SLOTS))[None, :, None, None]  # [1, num_slots, 1, 1]
    inside = torch.arange(6.0).view(1, 1, 2, 3) / 10  # [1, 1, num_kv_heads, head_dim]
    return (parts + slots + inside).view(2, NUM_BLOCKS, BLOCK_SIZE, 2, 3)


@pytest.mark.exercise("3.4")
@pytest.mark.parametrize("slots", [[9], [9, 10], [4, 23, 8], [13, 14, 15, 4, 5]])
def test_each_token_goes_to_its_slot(code: ModuleType, slots: list[int]) -> None:
    layer = _numbered_layer()
    before = layer.clone().flatten(1, 2)
    key = -torch.arange(1.0, 6 * len(slots) + 1).view(len(slots), 2, 3)
    value = key - 500
    code.write_kv(layer, key, value, torch.tensor(slots))
    after = layer.flatten(1, 2)  # [2, num_slots, num_kv_heads, head_dim]
    for part, name, new in ((0, "keys", key), (1, "values", value)):
        for slot in range(NUM_SLOTS):
            tokens = "1 token" if len(slots) == 1 else f"{len(slots)} tokens"
            case = f"write_kv of {tokens} into slots {slots}: the {name} in slot {slot}"
            place = f"slot {slot} is block {slot // BLOCK_SIZE}, offset {slot % BLOCK_SIZE}"
            if slot in slots:
                token = slots.index(slot)
                rule = f"{place}, and token {token} belongs there; kv_layer[0] holds keys, kv_layer[1] values"
                if torch.equal(after, before):
                    rule += ". Nothing in the layer has changed: a view of it shares its memory, a copy does "
                    rule += "not"
                elif torch.equal(after[1], before[1]):
                    rule += ". Only the keys were written"
                elif part == 1 and torch.equal(after[1, slot], key[token]):
                    rule += ". These numbers are the token's keys"
                wanted = new[token]
            else:
                rule, wanted = f"{place}: no token goes there, so it stays as it was", before[part, slot]
            expect_equal(after[part, slot].tolist(), wanted.tolist(), case=case, rule=rule)


def _expect_gathered(code: ModuleType, table: list[int], seq_len: int, padding: int) -> None:
    slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(seq_len)]
    layer = _numbered_layer()
    kept = layer.clone().flatten(1, 2)[:, slots]  # [2, seq_len, num_kv_heads, head_dim]
    others = [slot for slot in range(NUM_SLOTS) if slot not in slots]
    layer.flatten(1, 2)[:, others] = float("nan")
    padded = torch.tensor(table + [0] * padding, dtype=torch.int32)
    case = f"gather(kv_layer, block_table={padded.tolist()}, seq_len={seq_len}), blocks of {BLOCK_SIZE}"
    result = code.gather(layer, padded, seq_len)
    expect(
        isinstance(result, tuple) and len(result) == 2,
        case=case,
        rule="it returns two tensors: keys, values",
        expected="a tuple of 2",
        got=kind_of(result),
    )
    for name, got, wanted in zip(("keys", "values"), result, kept, strict=True):
        expect_equal(
            shape_of(got),
            tuple(wanted.shape),
            case=f"shape of the {name} of {case}",
            rule="[seq_len, num_kv_heads, head_dim]: all tokens, and nothing after them",
        )
        # All numbers are different, so a token's first number tells its slot.
        offset = 0 if name == "keys" else 1000
        seen = [round(number - offset) if number == number else "NaN" for number in got[:, 0, 0].tolist()]
        rule = "position p comes from block_table[p // block_size], offset p % block_size, in the order of "
        rule += "the table; NaN is a slot that this sequence does not own"
        if (name, seen) in (("keys", [slot + 1000 for slot in slots]), ("values", [s - 1000 for s in slots])):
            rule = "keys come first, then values: here the two are exchanged"
        expect_equal(seen, slots, case=f"slots whose {name} came from {case}", rule=rule)
        expect(torch.equal(got, wanted), case=case, rule=f"the {name}, all heads, unchanged")


@pytest.mark.exercise("3.4")
@pytest.mark.parametrize(
    ("table", "seq_len", "padding"),
    [([3], 1, 0), ([3], 4, 0), ([2], 3, 1), ([4, 2], 8, 0), ([5, 1], 5, 2), ([4, 2, 5], 10, 0)],
)
def test_gathered_in_order(code: ModuleType, table: list[int], seq_len: int, padding: int) -> None:
    _expect_gathered(code, table, seq_len, padding)


@pytest.mark.exercise("3.4")
@given(st.permutations(range(1, NUM_BLOCKS)), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2))
def test_what_is_written_is_gathered(
    code: ModuleType, blocks: list[int], num_blocks: int, empty: int, padding: int
) -> None:
    table = blocks[:num_blocks]
    seq_len = num_blocks * BLOCK_SIZE - empty
    layer = torch.full((2, NUM_BLOCKS, BLOCK_SIZE, 1, 2), float("nan"))
    slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(seq_len)]
    key = torch.arange(2.0 * seq_len).view(seq_len, 1, 2)
    code.write_kv(layer, key, key + 500, torch.tensor(slots))
    keys, values = code.gather(layer, torch.tensor(table + [0] * padding, dtype=torch.int32), seq_len)
    case = f"{seq_len} tokens, written to slots {slots} and gathered through the table {table}"
    for name, got, wanted in (("keys", keys, key), ("values", values, key + 500)):
        expect_equal(
            shape_of(got), tuple(wanted.shape), case=f"shape of the {name}: {case}", rule="all of them"
        )
        rule = f"all {name} come back, in order; the first number of each token is shown"
        expect(
            torch.equal(got, wanted),
            case=case,
            rule=rule,
            expected=show(wanted[:, 0, 0].tolist()),
            got=got[:, 0, 0].tolist(),
        )
