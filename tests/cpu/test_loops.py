"""The innermost loops, compared with NumPy: every number of rows, any depth, any stride."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.cpu.arithmetic.dots import MOST_VECTORS, ROWS_TOGETHER, multiply_rows
from minipaged.cpu.arithmetic.exponential import exponential
from minipaged.cpu.arithmetic.vectors import LANES
from minipaged.cpu.attention.softmax_row import ROW, largest, weigh
from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.compiler.instructions import address_of
from minipaged.cpu.products.tile import (
    PANEL,
    TILE_ROWS,
    WIDE_ROWS,
    multiply_scattered,
    multiply_tile,
    multiply_wide_tile,
)


@compiled()
def tile(x, weights, result, size, resume, corner):
    """`size` is (rows, depth); all operands begin at this row and column of their arrays."""
    row, column = corner
    operands = (x, row, column), (weights, row, column), (result, row, column)
    multiply_tile(size[0], size[1], operands[0], operands[1], operands[2], resume, (weights[:1], 0, 0), 43)


@compiled()
def wide_tile(x, weights, others, ahead, result, resume):
    operands = (x, 0, 0), (weights, 0, 0), (others, 0, 0), (result, 1, 0)
    following = (ahead, 0, 0)
    num_rows, depth = x.shape
    x, weights, others, result = operands
    multiply_wide_tile(num_rows, depth, x, weights, others, result, resume, following, following, 43)


@compiled()
def rows(x, others, addresses, result):
    """All dot products of x's rows with the rows of `others` at `addresses`."""
    count, size = x.shape
    multiply_rows(
        count,
        result.shape[1],
        size,
        (x, 0, 0),
        addresses,
        addresses,
        address_of(others),
        others,
        (result, 0, 0),
    )


@compiled()
def scattered(x, weights, addresses, result):
    multiply_scattered(
        len(x), x.shape[1], (x, 0, 0), addresses, addresses, address_of(weights), weights, (result, 0, 0)
    )


@compiled()
def softmax_row(scores):
    highest = largest((scores, 1, 2))
    return highest, weigh((scores, 1, 2), highest)


@compiled()
def exponentials(x, result):
    for i in range(len(x)):
        result[i] = exponential(x[i])


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_bfloat16(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bits of x cut to bfloat16, and the numbers that these bits mean."""
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, TILE_ROWS),
    depth=st.integers(1, 70),
    resume=st.booleans(),
    half=st.booleans(),
    more=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_tile(num_rows: int, depth: int, resume: bool, half: bool, more: int, seed: int) -> None:
    row, column = more, 2 * more
    x = numbers(seed, row + num_rows, column + depth + more)
    weights = numbers(seed + 1, row + depth, column + PANEL + more)
    stored = weights
    if half:
        stored, weights = as_bfloat16(weights)
    result = numbers(seed + 2, row + num_rows + 1, column + PANEL + 1)
    before = result.copy()
    tile(x, stored, result, (num_rows, depth), resume, (row, column))
    part = (slice(row, row + num_rows), slice(column, column + PANEL))
    expected = x[row:, column : column + depth].astype(np.float64) @ weights[row:, column : column + PANEL]
    np.testing.assert_allclose(result[part], expected + (before[part] if resume else 0), atol=1e-4)
    result[part] = before[part]
    np.testing.assert_array_equal(result, before, "only the tile is written")


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, WIDE_ROWS),
    depth=st.integers(1, 70),
    resume=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_wide_tile_is_two_tiles(num_rows: int, depth: int, resume: bool, seed: int) -> None:
    """Equal to the last bit."""
    x, weights, others = numbers(seed, num_rows, depth), *numbers(seed + 1, 2, depth, PANEL)
    result = numbers(seed + 2, num_rows + 2, 2 * PANEL)
    expected = result.copy()
    for each, half in ((weights, slice(0, PANEL)), (others, slice(PANEL, None))):
        narrow = expected[1:-1, half].copy()
        tile(x, each, narrow, (num_rows, depth), resume, (0, 0))
        expected[1:-1, half] = narrow
    wide_tile(x, weights, others, as_bfloat16(weights)[0], result, resume)
    np.testing.assert_array_equal(result, expected)


def test_a_tiles_row_does_not_depend_on_the_others() -> None:
    x, weights = numbers(0, TILE_ROWS, 50), numbers(1, 50, PANEL)
    whole, alone = np.empty((TILE_ROWS, PANEL), np.float32), np.empty((1, PANEL), np.float32)
    tile(x, weights, whole, (TILE_ROWS, 50), False, (0, 0))
    for row in range(TILE_ROWS):
        tile(x[row : row + 1], weights, alone, (1, 50), False, (0, 0))
        np.testing.assert_array_equal(alone[0], whole[row])


def somewhere(rows: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Randomly drawn rows, and their addresses in bytes from the first row."""
    chosen = np.random.default_rng(seed).integers(0, len(rows), count)
    return chosen, (chosen * rows.strides[0]).astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, MOST_VECTORS),
    num_rows=st.integers(1, 20),
    vectors=st.integers(1, 9),
    half=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows(count: int, num_rows: int, vectors: int, half: bool, seed: int) -> None:
    size = vectors * LANES
    x, others = numbers(seed, count, size), numbers(seed + 1, 7, size)
    stored = others
    if half:
        stored, others = as_bfloat16(others)
    padded = -(-num_rows // ROWS_TOGETHER) * ROWS_TOGETHER
    chosen, addresses = somewhere(stored, padded, seed)
    wide = np.full((count + 1, padded + 3), 7, np.float32)
    rows(x, stored, addresses, wide[:count, 1 : num_rows + 1])
    expected = x.astype(np.float64) @ others[chosen[:num_rows]].T
    np.testing.assert_allclose(wide[:count, 1 : num_rows + 1], expected, atol=1e-4)
    assert (wide[count] == 7).all()
    assert (wide[:, 0] == 7).all()
    assert (wide[:, padded + 1 :] == 7).all()


def test_a_product_does_not_depend_on_the_others() -> None:
    x, others = numbers(0, MOST_VECTORS, 64), numbers(1, 40, 64)
    _, addresses = somewhere(others, 24, 2)
    whole, alone = np.empty((MOST_VECTORS, 24), np.float32), np.empty((1, 8), np.float32)
    rows(x, others, addresses, whole)
    for vector in range(MOST_VECTORS):
        for first in (0, 3, 16):
            rows(x[vector : vector + 1], others, addresses[first : first + 8], alone)
            np.testing.assert_array_equal(alone[0], whole[vector, first : first + 8])


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, TILE_ROWS), depth=st.integers(1, 70), half=st.booleans(), seed=st.integers(0, 99)
)
def test_a_tile_of_scattered_weights(num_rows: int, depth: int, half: bool, seed: int) -> None:
    x, weights = numbers(seed, num_rows, depth), numbers(seed + 1, 9, PANEL + 5)
    stored = weights
    if half:
        stored, weights = as_bfloat16(weights)
    chosen, addresses = somewhere(stored, depth, seed)
    result = numbers(seed + 2, num_rows, PANEL)
    expected = result + x.astype(np.float64) @ weights[chosen, :PANEL]
    scattered(x, stored, addresses, result)
    np.testing.assert_allclose(result, expected, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(scale=st.sampled_from([1, 40, 1e30]), masked=st.integers(0, ROW - 1), seed=st.integers(0, 99))
def test_weights_of_a_row(scale: float, masked: int, seed: int) -> None:
    scores = numbers(seed, 3, ROW + 4) * np.float32(scale)
    row = scores[1, 2 : ROW + 2]
    row[ROW - masked :] = -np.inf
    expected, before = np.exp(row.astype(np.float64) - row.max()), scores.copy()
    highest, total = softmax_row(scores)
    assert highest == before[1, 2 : ROW + 2].max()
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)
    before[1, 2 : ROW + 2] = row
    np.testing.assert_array_equal(scores, before, "only the row is written")


def test_a_nan_makes_a_rows_total_nan() -> None:
    for place in (0, 17, ROW - 1):
        scores = numbers(0, 3, ROW + 4)
        scores[1, 2 + place] = np.nan
        assert np.isnan(softmax_row(scores)[1])


def test_exponential() -> None:
    x = -np.linspace(0, 87, 200_001, dtype=np.float32)
    result = np.empty_like(x)
    exponentials(x, result)
    np.testing.assert_allclose(result, np.exp(x.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize(
    ("x", "expected"), [(0.0, 1.0), (-0.0, 1.0), (-88.0, 0.0), (-1e30, 0.0), (-np.inf, 0.0), (np.nan, np.nan)]
)
def test_exponential_at_the_ends(x: float, expected: float) -> None:
    result = np.empty(1, np.float32)
    exponentials(np.array([x], np.float32), result)
    np.testing.assert_array_equal(result, np.array([expected], np.float32))
