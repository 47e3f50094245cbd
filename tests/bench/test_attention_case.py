"""Invented attention steps: their contents, and how their work is counted."""

from __future__ import annotations

import torch

from minipaged.attention.reference import reference_attention
from minipaged.bench.attention_case import AttentionCase, Shape, Span, cache_numbers, make_case

SHAPE = Shape(num_heads=4, num_kv_heads=2, head_dim=8)
SPANS = [Span(1, 5), Span(1, 8), Span(3, 6), Span(4, 4)]


def make(*, shuffled: bool = True, poisoned: bool = False) -> AttentionCase:
    memory = torch.randn(cache_numbers(SPANS, SHAPE, 4) + 3, generator=torch.Generator().manual_seed(0))
    return make_case(SPANS, SHAPE, 4, memory, shuffled=shuffled, poisoned=poisoned)


def test_shapes() -> None:
    case = make()
    assert case.query.shape == (9, 4, 8)
    assert case.kv_layer.shape == (2, 1 + 2 + 2 + 2 + 1, 4, 2, 8)
    assert case.metadata.query_start_loc.tolist() == [0, 1, 2, 5, 9]
    assert case.metadata.num_decodes == 2


def test_no_block_is_used_twice() -> None:
    tables = make().metadata.block_tables
    assert sorted(tables[tables > 0].tolist()) == list(range(1, 8))
    assert tables.tolist() != make(shuffled=False).metadata.block_tables.tolist()
    assert make(shuffled=False).metadata.block_tables.tolist() == [[1, 2], [3, 4], [5, 6], [7, 0]]


def test_poison_is_behind_the_ends_and_nowhere_else() -> None:
    case = make(poisoned=True)
    nan = case.kv_layer.isnan().all(dim=(0, 3, 4))  # [num_blocks, block_size]
    assert int(nan.sum()) == 3 + 0 + 2 + 0
    output = reference_attention(case.query, case.kv_layer, case.metadata, case.scale)
    assert output.isfinite().all()


def test_the_work_is_counted() -> None:
    case = make()
    assert case.kv_bytes == 2 * (5 + 8 + 6 + 4) * 2 * 8 * 4
    pairs = 5 + 8 + (4 + 5 + 6) + (1 + 2 + 3 + 4)
    assert case.flops == 4 * pairs * 4 * 8  # two products, two operations each


def test_the_same_numbers_in_float32() -> None:
    memory = torch.randn(cache_numbers(SPANS, SHAPE, 4)).bfloat16()
    case = make_case(SPANS, SHAPE, 4, memory)
    exact = case.in_float32()
    assert exact.kv_layer.dtype == exact.query.dtype == torch.float32
    assert torch.equal(exact.kv_layer.bfloat16(), case.kv_layer)
