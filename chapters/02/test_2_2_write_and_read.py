"""Checks of exercise 2.2: a token's place in a region."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch02.drawing import ruler
from minipaged.course.expect import expect, expect_equal, show

if TYPE_CHECKING:
    from torch import Tensor

# Importing torch takes seconds, and most exercises of this chapter do not need it. So each test imports it.

SLOTS, KV_HEADS, HEAD_DIM = 16, 2, 3
OLD = -1.0
"""The contents of a slot that was not written."""


def _tokens(num_tokens: int, first: float) -> Tensor:
    """`[num_tokens, KV_HEADS, HEAD_DIM]`: different numbers everywhere."""
    import torch

    count = num_tokens * KV_HEADS * HEAD_DIM
    return first + torch.arange(count, dtype=torch.float32).view(num_tokens, KV_HEADS, HEAD_DIM) / 1000


def _draw_slots(rows: dict[str, list[str]]) -> str:
    lines = ruler("slot", SLOTS)
    return "\n".join([*lines, *(f"{name:<7}{''.join(marks)}" for name, marks in rows.items())])


def _written(layer: Tensor, key: Tensor, value: Tensor, first: int) -> dict[str, list[str]]:
    """The contents of each slot: `.` old, `k` and `v` the right token, `x` something else."""
    import torch

    rows = {}
    for name, half, new in (("keys", layer[0], key), ("values", layer[1], value)):
        marks = []
        for slot in range(SLOTS):
            token = slot - first
            if 0 <= token < len(new) and torch.equal(half[slot], new[token]):
                marks.append(name[0])
            else:
                marks.append("." if bool((half[slot] == OLD).all()) else "x")
        rows[name] = marks
    return rows


@pytest.mark.exercise("2.2")
@pytest.mark.parametrize(
    ("start", "position", "num_tokens", "what"),
    [
        (0, 0, 1, "the first token of the first region"),
        (4, 0, 1, "the first token of a region that begins at slot 4"),
        (4, 5, 1, "the token at position 5 of that region"),
        (10, 5, 1, "the last slot of the cache"),
        (0, 0, 5, "a prompt in the first region"),
        (4, 0, 5, "a prompt in a region that begins at slot 4"),
        (4, 3, 4, "a chunk of four tokens, from position 3 on"),
    ],
)
def test_a_token_goes_to_start_plus_position(
    code: ModuleType, start: int, position: int, num_tokens: int, what: str
) -> None:
    import torch

    layer = torch.full((2, SLOTS, KV_HEADS, HEAD_DIM), OLD)
    key, value = _tokens(num_tokens, 10), _tokens(num_tokens, 20)
    code.write_region(layer, start, position, key, value)
    first = start + position
    expected = {
        name: [name[0] if first <= slot < first + num_tokens else "." for slot in range(SLOTS)]
        for name in ("keys", "values")
    }
    got = _written(layer, key, value, first)
    case = f"{what}: write_region(slots, start={start}, position={position}, …) with Q = {num_tokens}"
    expect(
        got == expected,
        case=case,
        rule="the token at a position is in slot start + position; keys in slots[0], values in slots[1]; "
        "nothing else changes",
        state=f"expected\n{_draw_slots(expected)}\ngot (x: something else)\n{_draw_slots(got)}",
    )


@pytest.mark.exercise("2.2")
@pytest.mark.parametrize(("start", "num_tokens"), [(0, 1), (4, 1), (0, 5), (4, 7), (9, 7)])
def test_read_what_is_written_and_no_more(code: ModuleType, start: int, num_tokens: int) -> None:
    import torch

    layer = torch.stack([_tokens(SLOTS, 10), _tokens(SLOTS, 20)])  # [2, SLOTS, KV_HEADS, HEAD_DIM]
    case = f"read_region(slots, start={start}, num_tokens={num_tokens})"
    got = code.read_region(layer, start, num_tokens)
    expect(
        isinstance(got, tuple) and len(got) == 2,
        case=case,
        rule="keys and values, a pair",
        expected="a tuple of 2",
        got=got,
    )
    for name, half, found in (("keys", layer[0], got[0]), ("values", layer[1], got[1])):
        marks = [name[0] if start <= slot < start + num_tokens else "." for slot in range(SLOTS)]
        expect_equal(
            tuple(found.shape),
            (num_tokens, KV_HEADS, HEAD_DIM),
            case=f"shape of the {name} of {case}",
            rule="all written tokens, and nothing after them",
            state=_draw_slots({"wanted": marks}),
        )
        expect(
            torch.equal(found, half[start : start + num_tokens]),
            case=f"the {name} of {case}",
            rule=f"slots {start} to {start + num_tokens - 1} of slots[{0 if name == 'keys' else 1}]",
            expected=", ".join(f"slot {slot} of the {name}" for slot in range(start, start + num_tokens)),
            got=", ".join(f"slot {_slot_of(row, layer)}" for row in found),
            state=_draw_slots({"wanted": marks}),
        )
        expect(
            found.untyped_storage().data_ptr() == layer.untyped_storage().data_ptr(),
            case=f"the {name} of {case}",
            expected="a view: the cache's own memory",
            got="a copy",
            rule="each step reads all tokens of a sequence: a copy (read, write, read again) triples that",
        )


def _slot_of(row: Tensor, layer: Tensor) -> str:
    import torch

    for half, name in enumerate(("keys", "values")):
        for slot in range(SLOTS):
            if torch.equal(layer[half, slot], row):
                return f"{slot} of the {name}"
    return "?"


@pytest.mark.exercise("2.2")
@given(
    regions=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    chunk=st.integers(1, 3),
)
def test_neighbours_do_not_disturb_each_other(code: ModuleType, regions: list[int], chunk: int) -> None:
    """Adjacent regions are filled in turns, some tokens at a time."""
    import torch

    layer = torch.full((2, sum(regions) + 1, KV_HEADS, HEAD_DIM), float("nan"))
    starts = [sum(regions[:i]) for i in range(len(regions))]
    tokens = [(_tokens(size, 100 * i + 10), _tokens(size, 100 * i + 50)) for i, size in enumerate(regions)]
    for position in range(0, max(regions), chunk):
        for start, (keys, values) in zip(starts, tokens, strict=True):
            key, value = keys[position : position + chunk], values[position : position + chunk]
            if len(key):
                code.write_region(layer, start, position, key, value)
    for number, (start, (keys, values)) in enumerate(zip(starts, tokens, strict=True)):
        got_keys, got_values = code.read_region(layer, start, len(keys))
        expect(
            torch.equal(got_keys, keys) and torch.equal(got_values, values),
            case=f"region {number} of {len(regions)}, which begins at slot {start} and has {len(keys)} "
            f"tokens, written {chunk} at a time",
            rule="a region reads back what was written to it, whatever its neighbours write",
            expected=f"keys that begin with {show(keys[:, 0, 0].tolist())}, values with "
            f"{show(values[:, 0, 0].tolist())}",
            got=f"{show(got_keys[:, 0, 0].tolist())}, and {show(got_values[:, 0, 0].tolist())}",
        )
