"""Exercise 5.4: several programs for one sequence, and the merge of their results."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from minipaged.course.ch05.cases import arguments, decode_step, expect_attention
from minipaged.course.expect import expect


@pytest.mark.exercise("5.4", "merge")
@pytest.mark.parametrize(
    ("what", "sums", "wanted"),
    [
        ("one part", [2.0], 1.0),
        ("two equal parts", [1.0, 1.0], 1.5),
        ("the second part has three times the sum", [1.0, 3.0], 1.75),
        ("the last part is empty", [1.0, 1.0, 0.0], 1.5),
        ("the first part is empty", [0.0, 1.0, 3.0], 2.75),
    ],
)
def test_merge(code: ModuleType, what: str, sums: list[float], wanted: float) -> None:
    """Part i has the result i + 1."""
    outputs = torch.arange(1.0, len(sums) + 1).view(1, 1, -1, 1).repeat(1, 1, 1, 2)
    log_sums = torch.tensor(sums).log().view(1, 1, -1)
    got = code.merge(outputs, log_sums)
    case = f"merge of {outputs[0, 0, :, 0].tolist()}, sums {sums}: {what}"
    expect(
        tuple(got.shape) == (1, 1, 2),
        case=f"shape of {case}",
        rule="the dimension of the parts disappears: [..., head_dim]",
        expected="(1, 1, 2)",
        got=f"{tuple(got.shape)}",
    )
    expect(
        bool(((got - wanted).abs() <= 1e-5).all()),
        case=case,
        rule="a part's weight is its sum divided by the sum of all parts",
        expected=f"{wanted}",
        got=f"{got.flatten().tolist()}",
    )


@pytest.mark.exercise("5.4", "merge")
@pytest.mark.parametrize("shift", [-300.0, 300.0])
def test_merge_does_not_overflow(code: ModuleType, shift: float) -> None:
    outputs, log_sums = torch.tensor([[[[1.0], [3.0]]]]), torch.tensor([[[shift, shift]]])
    got = code.merge(outputs, log_sums)
    expect(
        bool(((got - 2).abs() <= 1e-5).all()),
        case=f"merge of 1 and 3, both with the log sum {shift:g}",
        rule="exp(300) does not fit into a float32, and exp(-300) is 0: subtract the greatest first",
        expected="2",
        got=f"{got.flatten().tolist()}",
    )


def _expect_split(code: ModuleType, seq_lens: list[int], num_splits: int, what: str, **sizes: int) -> None:
    step = decode_step(seq_lens, **sizes)
    got = code.split_decode(*arguments(step), num_splits)
    expect_attention(got, step, f"split_decode in {num_splits} parts: {what}")


@pytest.mark.exercise("5.4", "split_decode", "part_kernel")
@pytest.mark.parametrize(
    ("what", "seq_lens", "num_splits"),
    [
        ("one sequence of two blocks, not split", [25], 1),
        ("one sequence of two blocks", [32], 2),
        ("three blocks, so the parts have two and one", [41], 2),
        ("seven blocks, so the parts have three, three and one", [100], 3),
        ("more parts than blocks", [20], 4),
        ("five blocks, so the last part is empty", [75], 4),
        ("sequences of different lengths", [3, 70, 33], 3),
    ],
)
def test_parts(code: ModuleType, what: str, seq_lens: list[int], num_splits: int) -> None:
    _expect_split(code, seq_lens, num_splits, what, num_heads=1, num_kv_heads=1)


@pytest.mark.exercise("5.4", "split_decode", "part_kernel")
def test_heads(code: ModuleType) -> None:
    _expect_split(code, [50, 20], 2, "6 query heads, 2 KV heads", num_heads=6, num_kv_heads=2)
