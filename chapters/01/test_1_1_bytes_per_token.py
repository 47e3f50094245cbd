"""Checks of exercise 1.1: bytes that one token takes."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.expect import expect_equal


@pytest.mark.exercise("1.1")
@pytest.mark.parametrize(
    ("model", "num_layers", "num_kv_heads", "head_dim", "dtype_bytes", "expected"),
    [
        ("the smallest one there can be, with numbers of one byte", 1, 1, 1, 1, 2),
        ("three of its layers", 3, 1, 1, 1, 6),
        ("OPT-13B in float16", 40, 40, 128, 2, 819_200),
        ("Qwen2.5-1.5B in bfloat16, with 2 KV heads for 12 query heads", 28, 2, 128, 2, 28_672),
        ("SmolLM2-135M in float32", 30, 3, 64, 4, 46_080),
    ],
)
def test_models(
    code: ModuleType,
    model: str,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    dtype_bytes: int,
    expected: int,
) -> None:
    got = code.bytes_per_token(num_layers, num_kv_heads, head_dim, dtype_bytes)
    if isinstance(got, float):
        rule = "bytes are counted: return an int"
    elif got == expected / 2:
        rule = "a token has a key and a value: it takes twice as many bytes"
    elif got == expected / num_layers:
        rule = "every layer keeps its own key and value: this is the result for one layer"
    elif got == expected * 8:
        rule = "bytes, not bits"
    else:
        rule = "each layer keeps a key and a value: num_kv_heads × head_dim numbers of dtype_bytes bytes each"
    expect_equal(
        got,
        expected,
        case=f"{model}: bytes_per_token({num_layers}, {num_kv_heads}, {head_dim}, {dtype_bytes})",
        rule=rule,
    )


@pytest.mark.exercise("1.1")
@given(st.integers(1, 100), st.integers(1, 64), st.integers(1, 256), st.sampled_from([1, 2, 4]))
def test_each_factor_counts_once(
    code: ModuleType, num_layers: int, num_kv_heads: int, head_dim: int, dtype_bytes: int
) -> None:
    shape = (num_layers, num_kv_heads, head_dim, dtype_bytes)
    got = code.bytes_per_token(*shape)
    for place, name in enumerate(("num_layers", "num_kv_heads", "head_dim", "dtype_bytes")):
        doubled = [2 * number if i == place else number for i, number in enumerate(shape)]
        expect_equal(
            code.bytes_per_token(*doubled),
            2 * got,
            case=f"bytes_per_token{shape} is {got:,}; with twice the {name}",
            rule=f"twice the {name}, twice the bytes",
        )
