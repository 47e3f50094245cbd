"""Checks of exercise 3.5: one step of attention through the tables."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.course.ch03.step import Step, make_step, shape_of
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import expect, expect_equal, kind_of


@pytest.mark.exercise("3.5")
@pytest.mark.parametrize("tables", [[[3]], [[4, 6], [8, 2]], [[7, 9], [5]], [[5], [7, 9, 3], [1, 2]]])
def test_tables_of_a_batch(code: ModuleType, tables: list[list[int]]) -> None:
    longest = max(map(len, tables))
    case = f"pad_block_tables of the tables {tables}"
    got = code.pad_block_tables([np.array(table, dtype=np.int32) for table in tables])
    expect(
        isinstance(got, np.ndarray) and got.dtype == np.int32,
        case=case,
        rule="the batch has the type and the dtype of the tables",
        expected="a NumPy array of int32",
        got=kind_of(got),
    )
    expect_equal(
        tuple(got.shape),
        (len(tables), longest),
        case=f"shape of {case}",
        rule="a row for each sequence, as wide as the longest table",
    )
    expect_equal(
        got.tolist(),
        [table + [0] * (longest - len(table)) for table in tables],
        case=case,
        rule="each row begins with its table; the rest is the null block, 0, which may always be read",
    )


def _expect_attention(code: ModuleType, step: Step, case: str) -> None:
    got = code.paged_attention(step.query, step.kv_layer, step.metadata, step.scale)
    wanted, unscaled = step.expected(), replace(step, scale=1.0).expected()
    expect_equal(
        shape_of(got),
        tuple(wanted.shape),
        case=f"shape of paged_attention of {case}",
        rule="one row for each query token: [T, num_heads, head_dim]",
    )
    starts = step.metadata.query_start_list
    state = draw_tables(
        {f"seq {i}": table for i, table in enumerate(step.tables)},
        note=f"tokens of each: {step.metadata.seq_lens_list}; rows begin at {starts}",
    )
    for s, seq_len in enumerate(step.metadata.seq_lens_list):
        rows = slice(starts[s], starts[s + 1])
        where = f"sequence {s}, rows {rows.start}:{rows.stop} of the output of paged_attention; {case}"
        expect(
            not bool(got[rows].isnan().any()),
            case=where,
            rule=f"the sequence has {seq_len} tokens; all other slots of its blocks, and blocks in no table, "
            "hold NaN here. Either such a slot was read, or some of these rows were not written",
            expected="no NaN",
            got="NaN",
            state=state,
        )
        error = (got[rows] - wanted[rows]).abs().max().item()
        rule = f"its queries attend to its own {seq_len} keys, through row {s} of block_tables, with the "
        rule += "newest token's key; each row of the output belongs to the same row of the query"
        if (got[rows] - unscaled[rows]).abs().max() <= 1e-5:
            rule = "this is the result with scale 1: pass `scale` to `attend_one`"
        expect(
            error <= 1e-5,
            case=where,
            rule=rule,
            expected=f"PyTorch's attention over the same {seq_len} keys, within 1e-5",
            got=f"up to {error:.2g} away",
            state=state,
        )


@pytest.mark.exercise("3.5")
@pytest.mark.parametrize(
    ("what", "seq_lens", "query_lens"),
    [
        ("one decode, in one block", [2], [1]),
        ("one decode, in three blocks", [9], [1]),
        ("one prompt, in one block", [2], [2]),
        ("one prompt, in two blocks", [7], [7]),
        ("two decodes", [2, 3], [1, 1]),
        ("three decodes of different lengths", [5, 12, 2], [1, 1, 1]),
        ("a decode, a prompt and a chunk on top of 6 cached tokens", [10, 6, 11], [1, 6, 5]),
    ],
)
def test_one_step(code: ModuleType, what: str, seq_lens: list[int], query_lens: list[int]) -> None:
    _expect_attention(code, make_step(seq_lens, query_lens), what)


@pytest.mark.exercise("3.5")
def test_the_scale_counts(code: ModuleType) -> None:
    _expect_attention(code, make_step([9, 3], [1, 1], head_dim=16), "two decodes, head_dim 16")


@pytest.mark.exercise("3.5")
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 1000),
)
def test_any_step_with_any_block_size(
    code: ModuleType, sequences: list[tuple[int, int]], block_size: int, seed: int
) -> None:
    seq_lens = [seq_len for seq_len, _ in sequences]
    query_lens = [min(query_len, seq_len) for seq_len, query_len in sequences]
    step = make_step(seq_lens, query_lens, block_size=block_size, seed=seed)
    _expect_attention(
        code, step, f"{seq_lens} tokens, the last {query_lens} computed, blocks of {block_size}"
    )
