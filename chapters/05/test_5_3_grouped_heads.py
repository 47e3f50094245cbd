"""Exercise 5.3: all query heads of a KV head in one tile."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from minipaged.course.ch05.cases import arguments, decode_step, expect_attention, sparse_cache
from minipaged.course.ch05.rung import DEVICE


def _expect_decode(code: ModuleType, seq_lens: list[int], what: str, **sizes: int) -> None:
    step = decode_step(seq_lens, **sizes)
    expect_attention(code.grouped_decode(*arguments(step)), step, f"grouped_decode: {what}")


@pytest.mark.exercise("5.3")
@pytest.mark.parametrize(
    ("what", "seq_lens"),
    [
        ("one sequence, one full block", [16]),
        ("one sequence, a block that is not full", [5]),
        ("one sequence of three blocks", [48]),
        ("one sequence of 35 tokens in three blocks", [35]),
        ("three sequences of different lengths", [17, 40, 1]),
    ],
)
def test_one_kv_head(code: ModuleType, what: str, seq_lens: list[int]) -> None:
    _expect_decode(code, seq_lens, f"{what}, one head", num_heads=1, num_kv_heads=1)


@pytest.mark.exercise("5.3")
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (2, 1), (6, 2), (4, 4)])
def test_heads(code: ModuleType, num_heads: int, num_kv_heads: int) -> None:
    what = f"{num_heads} query heads, {num_kv_heads} KV heads"
    _expect_decode(code, [20, 33], what, num_heads=num_heads, num_kv_heads=num_kv_heads)


@pytest.mark.exercise("5.3")
def test_large_group(code: ModuleType) -> None:
    _expect_decode(code, [20], "a group of 20 query heads", num_heads=20, num_kv_heads=1)


@pytest.mark.exercise("5.3")
def test_larger_sizes(code: ModuleType) -> None:
    _expect_decode(code, [40, 9], "blocks of 32, head_dim 64", block_size=32, head_dim=64)


@pytest.mark.exercise("5.3")
def test_great_scores(code: ModuleType) -> None:
    step = decode_step([40], num_heads=2, num_kv_heads=1)
    step = replace(step, query=400 * step.query)
    expect_attention(code.grouped_decode(*arguments(step)), step, "grouped_decode: scores of several hundred")


@pytest.mark.exercise("5.3")
def test_other_memory(code: ModuleType) -> None:
    step = decode_step([20, 9])
    query, kv_layer, block_tables, seq_lens, scale = arguments(step)
    wide = torch.nn.functional.pad(block_tables, (0, 3))  # [S, M + 3]
    query = torch.cat([query, query], dim=1)[:, : query.shape[1]]
    got = code.grouped_decode(query, kv_layer, wide, seq_lens, scale)
    expect_attention(got, step, "grouped_decode: a wider table, and a query that is part of a larger tensor")


@pytest.mark.exercise("5.3")
@pytest.mark.skipif(DEVICE.type == "cuda", reason="a GPU has no memory that is reserved and not used")
def test_far_blocks(code: ModuleType) -> None:
    step = decode_step([20], num_heads=1, num_kv_heads=1)
    query, kv_layer, _, seq_lens, scale = arguments(step)
    far = sparse_cache(2**28, 9, (16, 1, 16))
    far[:, 8], far[:, 2] = kv_layer[:, step.tables[0][0]], kv_layer[:, step.tables[0][1]]
    tables = torch.tensor([[8, 2]], dtype=torch.int32)
    got = code.grouped_decode(query, far, tables, seq_lens, scale)
    far_step = replace(step, tables=[[8, 2]])
    expect_attention(
        got, far_step, "grouped_decode: block 8 begins 2³¹ numbers after block 0; use 64-bit offsets"
    )
