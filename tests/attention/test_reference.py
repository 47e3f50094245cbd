"""reference_attention, compared with textbook attention in float64, on a cache with NaN in unused slots."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings

from minipaged.attention.reference import attend_one, gather, reference_attention
from tests.attention.ragged import Heads, Span, Step, dense_attention, make_step, steps

SMALL = Heads(num_kv_heads=2, group=2, head_dim=32)
MIXED = [
    Span(1, 1),
    Span(1, 17, num_spare=1),
    Span(5, 5),
    Span(16, 16),
    Span(3, 20, num_shared=2),
    Span(7, 33, num_spare=2),
]
DECODES = [Span(1, length) for length in (1, 2, 15, 16, 17, 33)]
PROMPTS = [Span(length, length) for length in (1, 2, 15, 16, 17, 33)]
CHUNKS = [Span(4, length) for length in (5, 16, 17, 20, 33)]


def run(step: Step) -> torch.Tensor:
    return reference_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)


def check(step: Step) -> None:
    output = run(step)
    assert output.shape == step.query.shape
    assert output.dtype == step.query.dtype
    torch.testing.assert_close(output.double(), dense_attention(step), atol=1e-5, rtol=0)


@pytest.mark.parametrize("block_size", [1, 2, 4, 16, 32])
@pytest.mark.parametrize(
    "batch", [DECODES, PROMPTS, CHUNKS, MIXED], ids=["decode", "prompt", "chunk", "mixed"]
)
def test_kinds_and_block_sizes(batch: list[Span], block_size: int) -> None:
    check(make_step(batch, SMALL, block_size, seed=block_size))


@pytest.mark.parametrize("head_dim", [32, 64, 80, 96, 128])
@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
def test_groups_and_head_dims(group: int, head_dim: int) -> None:
    check(make_step(MIXED, Heads(2, group, head_dim), 16, seed=group))


@pytest.mark.parametrize("num_kv_heads", [1, 3, 5])
def test_one_and_several_kv_heads(num_kv_heads: int) -> None:
    check(make_step(MIXED, Heads(num_kv_heads, 1, 32), 4))


@settings(max_examples=40, deadline=None)
@given(step=steps())
def test_any_step(step: Step) -> None:
    check(step)


@settings(max_examples=20, deadline=None)
@given(step=steps(dtype=torch.bfloat16))
def test_bfloat16_rounds_only_the_result(step: Step) -> None:
    """The arithmetic is in float32 for any dtype of the inputs, and the output is rounded once."""
    expected = dense_attention(step)
    torch.testing.assert_close(run(step).double(), expected, atol=1e-5, rtol=2**-8)


def test_the_poison_is_where_it_should_be() -> None:
    step = make_step([Span(1, 5, num_spare=1), Span(6, 6)], SMALL, 4)
    nan = step.kv_layer.isnan().all(dim=(0, 3, 4))  # [num_blocks, block_size]
    assert nan.any(), "there is something to trip over"
    assert torch.equal(nan, step.kv_layer.isnan().any(dim=0).any(dim=-1).any(dim=-1))
    assert int((~nan).sum()) == 4 + 5 + 6, "the null block, and one slot for each token"
    assert not nan[0].any()
    assert not run(step).isnan().any()


def test_a_sequence_sees_only_itself() -> None:
    """With another sequence's tokens replaced, nothing changes."""
    step = make_step([Span(1, 9), Span(7, 7)], SMALL, 4)
    before = run(step)
    for block_id in step.metadata.block_tables[1].tolist():
        if block_id:
            step.kv_layer[:, block_id] = 50.0
    after = run(step)
    assert torch.equal(after[:1], before[:1])
    assert not torch.equal(after[1:], before[1:])


def test_a_token_does_not_see_the_future() -> None:
    step = make_step([Span(6, 6)], SMALL, 2)
    before = run(step)
    step.kv_layer[:, step.metadata.block_tables[0, 2]] = 50.0  # positions 4 and 5
    after = run(step)
    assert torch.equal(after[:4], before[:4])
    assert not torch.isclose(after[4:], before[4:]).all(dim=(1, 2)).any()


def test_the_tables_order_is_the_sequences_order() -> None:
    step = make_step([Span(12, 12)], SMALL, 4)
    swapped = step.metadata.block_tables.flip(1)
    other = dataclasses.replace(step, metadata=dataclasses.replace(step.metadata, block_tables=swapped))
    assert not torch.allclose(run(step), run(other))
    check(other)


def test_two_sequences_may_share_all_blocks() -> None:
    """Two samples of one prompt, before they differ."""
    step = make_step([Span(1, 8), Span(1, 8, num_shared=2)], SMALL, 4)
    assert torch.equal(step.metadata.block_tables[0], step.metadata.block_tables[1])
    check(step)


def test_large_scores_do_not_overflow() -> None:
    step = make_step(MIXED, SMALL, 4)
    big = dataclasses.replace(step, query=step.query * 1000)
    assert run(big).isfinite().all()
    torch.testing.assert_close(run(big).double(), dense_attention(big), atol=1e-4, rtol=0)


def test_the_scale_is_used() -> None:
    step = make_step(MIXED, SMALL, 4)
    flat = reference_attention(step.query, step.kv_layer, step.metadata, 0.0)
    keys, values = gather(step.kv_layer, step.metadata.block_tables[1], 17)
    mean = values.mean(dim=0).repeat_interleave(2, dim=0)  # with equal weights, the mean
    torch.testing.assert_close(flat[1], mean)
    assert keys.shape == (17, 2, 32)


def test_a_sequence_without_queries_is_passed_over() -> None:
    step = make_step([Span(0, 5), Span(3, 6)], SMALL, 4)
    check(step)


@pytest.mark.parametrize("seq_len", [1, 3, 4, 5, 8])
def test_gather_leaves_the_tail_out(seq_len: int) -> None:
    step = make_step([Span(seq_len, seq_len, num_spare=1)], SMALL, 4)
    keys, values = gather(step.kv_layer, step.metadata.block_tables[0], seq_len)
    assert keys.shape == values.shape == (seq_len, 2, 32)
    assert not keys.isnan().any()
    assert not values.isnan().any()


def test_attend_one_by_hand() -> None:
    """Two tokens, one head, one dimension: the first sees itself, the second weighs both."""
    query = torch.tensor([1.0, 1.0]).view(2, 1, 1)
    keys = torch.tensor([0.0, 3.0]).log1p().view(2, 1, 1)  # scores log 1 and log 4
    values = torch.tensor([10.0, 20.0]).view(2, 1, 1)
    output = attend_one(query, keys, values, scale=1.0)
    torch.testing.assert_close(output.flatten(), torch.tensor([10.0, (10 * 1 + 20 * 4) / 5]))
