"""TritonAttention gives the output of reference_attention, also when unused slots hold NaN or infinity."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minipaged.triton_kernels.attention import TritonAttention
from minipaged.triton_kernels.decode_split import paged_decode_split
from minipaged.triton_kernels.gpu import Gpu
from minipaged.triton_kernels.prefill import paged_prefill
from minipaged.triton_kernels.tiles import prefill_tiles
from tests.attention.ragged import Heads, Span, Step, make_step
from tests.long_tests import examples
from tests.triton_kernels.steps import (
    DEVICE,
    assert_right,
    expected_output,
    gpu_with,
    on_device,
    poisoned_memory,
    triton_steps,
)

SMALL = Heads(num_kv_heads=2, group=2, head_dim=64)
ONE_HEAD = Heads(num_kv_heads=1, group=3, head_dim=64)


def run(step: Step, num_multiprocessors: int = 4) -> Tensor:
    attention = TritonAttention(gpu_with(num_multiprocessors))
    with poisoned_memory():
        return attention(step.query, step.kv_layer, step.metadata, step.heads.scale)


def check(step: Step, num_multiprocessors: int = 4) -> None:
    step = on_device(step)
    cache, query = step.kv_layer.clone(), step.query.clone()
    assert_right(step, run(step, num_multiprocessors))
    assert torch.equal(step.kv_layer.nan_to_num(7.0), cache.nan_to_num(7.0)), "the cache is only read"
    assert torch.equal(step.query, query)


@settings(max_examples=examples(20), deadline=None)
@given(step=triton_steps(), num_multiprocessors=st.sampled_from([4, 32]))
def test_any_step(step: Step, num_multiprocessors: int) -> None:
    check(step, num_multiprocessors)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_head_dims_and_dtypes(head_dim: int, dtype: torch.dtype) -> None:
    """Dimensions that are not powers of two are padded inside the kernel; the tensors are not padded."""
    check(make_step([Span(1, 37), Span(5, 20)], Heads(1, 3, head_dim), 16, dtype=dtype))


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("group", [1, 3, 4, 7, 8, 17])
def test_groups(group: int) -> None:
    """Query heads that share a KV head are rows of one tile, with one query and with several."""
    check(make_step([Span(1, 33), Span(20, 33)], Heads(2, group, 64), 16))


@pytest.mark.parametrize("block_size", [1, 2, 3, 16, 64, 128])
def test_block_sizes(block_size: int) -> None:
    """A tile covers many blocks, or part of one block."""
    check(make_step([Span(1, 140), Span(1, 130, 1, 9), Span(6, 135)], ONE_HEAD, block_size))


def test_a_prompt_of_several_tiles() -> None:
    check(make_step([Span(150, 150), Span(1, 1), Span(40, 170), Span(2, 2)], ONE_HEAD, 16))


def test_a_program_writes_its_own_queries_alone() -> None:
    """A program writes no row for its padding.

    With three query heads for each KV head, a tile of 32 rows holds 10 queries and two rows of padding.
    The padding has the row numbers of the next program's first query, but sees one key too few.
    """
    heads = Heads(1, 3, 64)
    assert prefill_tiles(heads.group, heads.head_dim, torch.float32, Gpu.of(DEVICE)).rows == 32
    step = on_device(make_step([Span(20, 20)], heads, 16))
    output = torch.full_like(step.query, float("nan"))
    paged_prefill(
        step.query,
        step.kv_layer,
        step.metadata.block_tables,
        step.metadata.seq_lens,
        step.metadata.query_start_loc,
        output,
        heads.scale,
        Gpu.of(DEVICE),
        first_seq=0,
        max_query_len=10,  # launches the first program alone
    )
    assert output[10:].isnan().all()
    torch.testing.assert_close(output[:10], expected_output(step)[:10], atol=1e-5, rtol=0)


def test_a_sequence_of_length_0_gives_zeros() -> None:
    """Such rows pad a batch to a size that a CUDA graph was captured for."""
    step = on_device(make_step([Span(1, 0), Span(1, 20), Span(1, 0)], SMALL, 4))
    output = run(step)
    assert torch.equal(output[0], torch.zeros_like(output[0]))
    assert torch.equal(output[2], torch.zeros_like(output[2]))
    assert output[1].abs().min() > 0


@pytest.mark.long(keep=3)
@pytest.mark.parametrize(
    ("num_splits", "lengths"),
    [
        (1, [0, 1, 63, 64, 65, 200]),
        (2, [0, 1, 127, 128, 129, 256]),
        (3, [0, 64, 65, 192, 193]),
        (7, [1, 128, 300]),
        (64, [0, 130]),
    ],
)
def test_any_number_of_splits(num_splits: int, lengths: list[int]) -> None:
    """Parts of many tiles, of one tile, and of no tile. Sequences that end at the edges of a part."""
    step = on_device(make_step([Span(1, length) for length in lengths], ONE_HEAD, 16))
    output = torch.full_like(step.query, float("nan"))
    tables, seq_lens = step.metadata.block_tables, step.metadata.seq_lens
    scale, gpu = step.heads.scale, Gpu.of(DEVICE)
    with poisoned_memory():
        paged_decode_split(step.query, step.kv_layer, tables, seq_lens, output, scale, gpu, num_splits)
    assert_right(step, output)


def test_sequences_that_share_all_blocks() -> None:
    check(make_step([Span(1, 64), Span(1, 64, num_shared=4), Span(9, 64, num_shared=4)], SMALL, 16))


def test_infinities_are_poison_too() -> None:
    step = make_step([Span(1, 5, num_spare=2), Span(1, 40), Span(3, 6)], SMALL, 4)
    check(dataclasses.replace(step, kv_layer=step.kv_layer.nan_to_num(float("inf"))))


def test_large_scores_do_not_overflow() -> None:
    step = make_step([Span(1, 40), Span(8, 40), Span(1, 200)], ONE_HEAD, 4)
    big = on_device(dataclasses.replace(step, query=step.query * 1000))
    for num_multiprocessors in (4, 32):
        output = run(big, num_multiprocessors)
        assert output.isfinite().all()
        torch.testing.assert_close(output, run(big), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dim", [-1, 0])
def test_queries_may_be_strided(dim: int) -> None:
    """Queries may be a view into a fused projection, with other numbers behind each head.

    They may also have their dimensions in another order in memory.
    """
    step = make_step([Span(1, 9), Span(1, 30), Span(4, 12)], Heads(2, 2, 80), 4)
    wide = torch.cat([step.query, torch.full_like(step.query, float("nan"))], dim=-1)
    strided = wide[..., :80]
    if dim == 0:
        strided = step.query.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strided.is_contiguous()
    assert torch.equal(strided, step.query)
    check(dataclasses.replace(step, query=strided))


def test_nothing_to_compute() -> None:
    """A sequence without queries is skipped, both alone and next to other sequences."""
    step = on_device(make_step([Span(0, 5)], SMALL, 4))
    assert run(step).shape == (0, SMALL.num_heads, SMALL.head_dim)
    check(make_step([Span(0, 5), Span(3, 6), Span(1, 4)], SMALL, 4))


def test_the_device_is_asked_for_its_multiprocessors() -> None:
    step = on_device(make_step([Span(1, 300)], ONE_HEAD, 16))
    attention = TritonAttention(Gpu.of(DEVICE))
    assert_right(step, attention(step.query, step.kv_layer, step.metadata, step.heads.scale))
