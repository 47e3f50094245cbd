"""CpuAttention gives the same as reference_attention, whatever unused slots hold."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings

from minipaged.attention.reference import reference_attention
from minipaged.cpu.attention.attention import CpuAttention
from tests.attention.ragged import Heads, Span, Step, dense_attention, make_step, steps
from tests.long_tests import examples
from tests.torch_threads import torch_threads

cpu_attention = CpuAttention()  # shared by all tests: no step may use another step's groups
SMALL = Heads(num_kv_heads=2, group=2, head_dim=32)
# (absolute, relative). The relative one matters only above 4, where neighbouring bfloat16 differ by 2 ** -5.
TOLERANCE = {torch.float32: (1e-5, 0.0), torch.bfloat16: (2e-2, 2**-8)}


def check(step: Step) -> None:
    cache, query = step.kv_layer.clone(), step.query.clone()
    output = cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    expected = reference_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    assert output.shape == step.query.shape
    assert output.dtype == step.query.dtype
    atol, rtol = TOLERANCE[step.query.dtype]
    torch.testing.assert_close(output, expected, atol=atol, rtol=rtol)
    assert torch.equal(step.kv_layer.nan_to_num(7.0), cache.nan_to_num(7.0)), "the cache is only read"
    assert torch.equal(step.query, query)


@settings(max_examples=examples(80), deadline=None)
@given(step=steps())
def test_float32(step: Step) -> None:
    check(step)


@settings(max_examples=examples(80), deadline=None)
@given(step=steps(dtype=torch.bfloat16))
def test_bfloat16(step: Step) -> None:
    check(step)


def test_bfloat16_scores_are_not_rounded() -> None:
    """A step that missed the tolerance when the scores of its decodes were in bfloat16."""
    batch = [Span(1, 6, num_shared=2), Span(1, 34, 2, 1), Span(1, 33, 2), Span(9, 9)]
    check(make_step(batch, Heads(3, 8, 128), 4, seed=982032, dtype=torch.bfloat16))


@pytest.mark.long(keep=12)
@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("block_size", [1, 2, 4, 16, 32])
def test_decodes_of_very_different_lengths(num_kv_heads: int, group: int, block_size: int) -> None:
    """Short tables are padded to the longest one, with the null block and with blocks of NaN."""
    lengths = [1, 200, 2, 31, 32, 33, 64]
    batch = [Span(1, length, num_spare=i % 3) for i, length in enumerate(lengths)]
    check(make_step(batch, Heads(num_kv_heads, group, 32), block_size))


@pytest.mark.parametrize("chunk", [2, 3, 16, 17])
def test_chunks_next_to_decodes(chunk: int) -> None:
    check(make_step([Span(1, 40), Span(chunk, 40), Span(1, 3), Span(chunk, chunk)], SMALL, 16))


def test_against_the_textbook() -> None:
    step = make_step([Span(1, 40), Span(8, 40), Span(1, 3), Span(9, 9)], SMALL, 4)
    output = cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    torch.testing.assert_close(output.double(), dense_attention(step), atol=1e-5, rtol=0)


def test_infinities_are_poison_too() -> None:
    """Unused slots may also hold Inf: 0 × Inf is NaN."""
    step = make_step([Span(1, 5, num_spare=2), Span(1, 40), Span(3, 6)], SMALL, 4)
    check(dataclasses.replace(step, kv_layer=step.kv_layer.nan_to_num(float("inf"))))


def test_a_finite_null_block_does_not_matter() -> None:
    step = make_step([Span(1, 1), Span(1, 40), Span(1, 9)], SMALL, 4, extra_columns=3)
    before = cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    step.kv_layer[:, 0] = 1e4
    after = cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    assert torch.equal(before, after)


def test_large_scores_do_not_overflow() -> None:
    step = make_step([Span(1, 40), Span(8, 40), Span(1, 3)], SMALL, 4)
    big = dataclasses.replace(step, query=step.query * 1000)
    output = cpu_attention(big.query, big.kv_layer, big.metadata, big.heads.scale)
    assert output.isfinite().all()
    torch.testing.assert_close(output.double(), dense_attention(big), atol=1e-4, rtol=0)


def test_queries_may_be_strided() -> None:
    """Queries are usually a view into one fused projection."""
    step = make_step([Span(1, 9), Span(1, 30), Span(4, 12)], SMALL, 4)
    wide = torch.cat([step.query, torch.full_like(step.query, float("nan"))], dim=-1)
    strided = wide[..., : SMALL.head_dim]
    assert not strided.is_contiguous()
    check(dataclasses.replace(step, query=strided))


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_threads_share_large_decodes(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any division among threads, even with fewer sequences than threads."""
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    with torch_threads(num_threads):
        for lengths in ([40], [1, 40], [40, 1, 1], [1] * 9, [3, 1, 200, 2, 5, 17, 60]):
            check(make_step([Span(1, length) for length in lengths], SMALL, 4))


@pytest.mark.parametrize("block", [-1, 10**6])
def test_a_block_that_is_not_there_is_refused(block: int) -> None:
    """Compiled code would read any memory at that place."""
    step = make_step([Span(1, 9), Span(1, 30)], SMALL, 4)
    step.metadata.block_tables[1, 3] = block
    with pytest.raises(IndexError, match="a block table holds a block that is not one of the"):
        cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)


def test_a_block_table_that_is_too_short_is_refused() -> None:
    step = make_step([Span(1, 9), Span(1, 30)], SMALL, 4)
    short = dataclasses.replace(step.metadata, block_tables=step.metadata.block_tables[:, :5])
    with pytest.raises(IndexError, match="or too few"):
        cpu_attention(step.query, step.kv_layer, short, step.heads.scale)


def test_other_head_sizes_go_to_the_reference() -> None:
    step = make_step([Span(1, 9), Span(4, 12)], Heads(2, 2, 24), 4)
    arguments = (step.query, step.kv_layer, step.metadata, step.heads.scale)
    assert torch.equal(cpu_attention(*arguments), reference_attention(*arguments))


def test_groups_larger_than_the_loops_take_at_once() -> None:
    check(make_step([Span(1, 9), Span(1, 30)], Heads(1, 29, 32), 4))


@pytest.mark.parametrize("group", [5, 13, 29])
def test_such_groups_in_bfloat16(group: int) -> None:
    check(make_step([Span(1, 9), Span(1, 30)], Heads(2, group, 32), 4, dtype=torch.bfloat16))


def share_blocks(step: Step, num_blocks: int) -> Step:
    """All sequences begin with the blocks of the first one."""
    tables = step.metadata.block_tables.clone()
    tables[:, :num_blocks] = tables[0, :num_blocks]
    return dataclasses.replace(step, metadata=dataclasses.replace(step.metadata, block_tables=tables))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_shared", [1, 16, 17, 33, 40])
def test_sequences_with_a_common_beginning(num_shared: int, dtype: torch.dtype) -> None:
    """More sequences than fit into a group, and common blocks that end within a chunk."""
    lengths = [161, 290, 170, 400, 161, 162, 163, 200, 255, 256, 257, 164]
    step = make_step([Span(1, length) for length in lengths], SMALL, 4, dtype=dtype)
    check(share_blocks(step, num_shared))


def test_a_token_is_the_same_in_any_company() -> None:
    """Equal to the last bit: as a single decode, in a group with the same first blocks, and in a prompt."""
    spans = [Span(1, length) for length in (161, 290, 170, 400)] + [Span(9, 140), Span(40, 40)]
    together = share_blocks(make_step(spans, SMALL, 4), 30)
    output = cpu_attention(together.query, together.kv_layer, together.metadata, SMALL.scale)
    starts = together.metadata.query_start_list
    for s, span in enumerate(spans):
        for i in range(span.num_queries):
            token = starts[s] + i
            length = together.metadata.seq_lens_list[s] - span.num_queries + i + 1
            alone = dataclasses.replace(
                together.metadata,
                query_start_loc=torch.tensor([0, 1]),
                seq_lens=torch.tensor([length]),
                block_tables=together.metadata.block_tables[s : s + 1],
                query_start_list=(0, 1),
                seq_lens_list=(length,),
                num_decodes=1,
            )
            result = cpu_attention(together.query[token : token + 1], together.kv_layer, alone, SMALL.scale)
            assert torch.equal(result[0], output[token])


def test_long_prompts_and_chunks() -> None:
    check(make_step([Span(1, 300), Span(150, 150), Span(70, 333), Span(64, 64), Span(65, 129)], SMALL, 16))


def test_metadata_of_another_step_is_refused() -> None:
    step = make_step([Span(1, 9), Span(1, 30)], SMALL, 4)
    for query, other in (
        (step.query, dataclasses.replace(step.metadata, block_tables=step.metadata.block_tables[:1])),
        (step.query, dataclasses.replace(step.metadata, seq_lens_list=(9,))),
        (step.query, dataclasses.replace(step.metadata, query_start_list=(0, 1))),
        (step.query[:1], step.metadata),
    ):
        with pytest.raises(IndexError, match=r"for \d sequences with"):
            cpu_attention(query, step.kv_layer, other, step.heads.scale)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_cache_of_another_dtype_goes_to_the_reference(dtype: torch.dtype) -> None:
    step = make_step([Span(1, 9), Span(1, 12)], SMALL, 4)
    arguments = (step.query.to(dtype), step.kv_layer.to(dtype), step.metadata, step.heads.scale)
    assert torch.equal(cpu_attention(*arguments), reference_attention(*arguments))


def test_a_cache_that_is_a_view_is_read_where_it_is() -> None:
    step = make_step([Span(1, 9), Span(1, 12)], SMALL, 4)
    wide = torch.cat([step.kv_layer, torch.full_like(step.kv_layer, 7.0)], dim=-1)
    check(dataclasses.replace(step, kv_layer=wide[..., : SMALL.head_dim]))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_poison_in_a_slot_that_is_owned_stays_in_its_sequence(poison: float) -> None:
    step = make_step([Span(1, 9), Span(1, 30)], SMALL, 4)
    step.kv_layer[:, step.metadata.block_tables[0, 0], 0] = poison
    output = cpu_attention(step.query, step.kv_layer, step.metadata, step.heads.scale)
    assert output[0].isnan().all()
    assert output[1].isfinite().all()


def test_whatever_the_default_dtype_is() -> None:
    step = make_step([Span(1, 9), Span(1, 30)], SMALL, 4)
    torch.set_default_dtype(torch.bfloat16)
    try:
        check(step)
    finally:
        torch.set_default_dtype(torch.float32)
