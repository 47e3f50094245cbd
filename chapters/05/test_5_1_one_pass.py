"""Exercise 5.1: softmax over tiles, in one pass."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minipaged.course.ch03.step import shape_of
from minipaged.course.expect import expect, expect_equal


def _expect_softmax(code: ModuleType, scores: Tensor, values: Tensor, tile: int, what: str) -> None:
    got = code.tiled_attention(scores, values, tile)
    case = f"tiled_attention(scores, values, {tile}): {what}"
    expect_equal(
        shape_of(got),
        (scores.shape[0], values.shape[1]),
        case=f"shape of {case}",
        rule="one row for each row of scores: [Q, head_dim]",
    )
    wanted = torch.softmax(scores.double(), dim=1).nan_to_num() @ values.double()
    for row in range(scores.shape[0]):
        state = f"scores  {scores[row].tolist()}" if scores.shape[1] <= 12 else ""
        sees_nothing = bool((scores[row] == float("-inf")).all())
        expect(
            bool(((got[row] - wanted[row]).abs() <= 1e-5).all()),
            case=f"row {row} of {case}",
            rule="a row that sees no token gets zeros"
            if sees_nothing
            else "each token's weight is exp(score) divided by the sum over all tokens of the row. When the "
            "maximum grows, both sums so far must be scaled down to it",
            expected=f"{wanted[row].tolist()}",
            got=f"{got[row].tolist()}",
            state=state,
        )


@pytest.mark.exercise("5.1")
@pytest.mark.parametrize(
    ("what", "scores"),
    [
        ("one tile", [0.5, 1.0, 0.25]),
        ("two tiles, the greatest score first", [2.0, 0.0, 1.0, -1.0, 0.0, 0.5]),
        ("two tiles, the greatest score last", [0.0, -1.0, 0.5, 1.0, 0.0, 2.0]),
        ("the last tile is shorter", [0.0, 2.0, 1.0, -1.0]),
        ("the second tile is masked", [0.0, 1.0, 2.0, *[float("-inf")] * 3, 1.0]),
        ("the first tile is masked", [*[float("-inf")] * 3, 1.0, 2.0]),
        ("all tokens are masked", [float("-inf")] * 5),
        ("scores of 10,000", [1e4, 1e4, -1e4, 1e4, 0.0]),
        ("scores of -10,000", [-1e4, -1e4, -1e4, -1e4]),
    ],
)
def test_one_row(code: ModuleType, what: str, scores: list[float]) -> None:
    values = torch.arange(1.0, 2 * len(scores) + 1).view(len(scores), 2)
    _expect_softmax(code, torch.tensor([scores]), values, 3, what)


@pytest.mark.exercise("5.1")
def test_rows_have_their_own_maxima(code: ModuleType) -> None:
    scores = torch.tensor([[0.0, 1.0, 2.0, 3.0], [900.0, 1.0, -2.0, 0.0], [1.0, float("-inf"), 5.0, 5.0]])
    _expect_softmax(code, scores, torch.eye(4), 2, "three rows")


@pytest.mark.exercise("5.1")
@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 9), st.integers(0, 1000))
def test_any_tiles(code: ModuleType, num_rows: int, num_tokens: int, tile: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(num_rows, num_tokens, generator=random)
    values = torch.randn(num_tokens, 4, generator=random)
    _expect_softmax(code, scores, values, tile, f"{num_rows} rows of {num_tokens} tokens")
