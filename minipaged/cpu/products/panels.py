"""Multiply many rows of x by one panel of weights (`multiply_panel`) or by two (`multiply_pair`), in tiles.

`panel_linear.py` says what a panel is, and `tile.py` what a tile is.

Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.products.tile import (
    PANEL,
    TILE_ROWS,
    WIDE_PAYS,
    WIDE_ROWS,
    multiply_tile,
    multiply_wide_tile,
)
from minipaged.cpu.products.tile_rows import widen_rows

Panels = NDArray[np.float32] | NDArray[np.uint16]

DEPTH = 192
"""The most numbers of a row of x that are multiplied before the next row has its turn. The piece of a panel
that they are multiplied by has 24 KB. It stays in a core's first-level cache while all rows are multiplied by
it. For a pair of panels, the limit is half as large."""

ROWS_BYTES = 320 * 1024
"""The most bytes of x that are multiplied together. They stay in a core's second-level cache while they are
multiplied by all panels."""


@compiled()
def rows_at_once(num_columns: int) -> int:
    """The most rows of x that should be multiplied by all panels together."""
    return max(TILE_ROWS, ROWS_BYTES // (4 * num_columns) // TILE_ROWS * TILE_ROWS)


@compiled()
def pairs_pay(num_rows: int, panels: Panels) -> bool:
    """Whether to multiply panels in pairs.

    Pairs pay if the rows fill more than one tile, or more than two if the weights have to be widened
    first.
    """
    return WIDE_PAYS and num_rows > TILE_ROWS * 4 // panels.itemsize


@compiled()
def multiply_panel(
    x: NDArray[np.float32],
    panels: Panels,
    panel: int,
    following: int,
    result: NDArray[np.float32],
    column: int,
) -> None:
    """Fill columns of `result` with x times the weights of one panel.

    Args:
        x: `[T, in]`, its rows contiguous.
        panels: `[P, in, PANEL]`, float32 or the bits of bfloat16, contiguous.
        panel: the index of that panel.
        following: the index of the panel that is multiplied next. It is fetched into the caches meanwhile.
        result: `[T or more, column + PANEL or more]`. It is overwritten.
        column: the first column of `result` to write.
    """
    # The outer loop goes over pieces of a panel that fit the first-level cache, the inner one over tiles,
    # whose sums stay in registers.
    num_rows, num_columns = x.shape
    num_pieces = (num_columns + DEPTH - 1) // DEPTH
    num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
    step = (PANEL * panels.itemsize + num_tiles - 1) // num_tiles  # each tile fetches its share
    for piece in range(num_pieces):
        start, stop = num_columns * piece // num_pieces, num_columns * (piece + 1) // num_pieces
        more = piece + 1 < num_pieces
        next_panel, next_start = (panel, stop) if more else (following, 0)
        # All tiles get about the same height. A last tile of a single row would load the weights for little
        # work.
        for tile in range(num_tiles):
            top, bottom = num_rows * tile // num_tiles, num_rows * (tile + 1) // num_tiles
            multiply_tile(
                bottom - top,
                stop - start,
                (x, top, start),
                (panels[panel], start, 0),
                (result, top, column),
                start > 0,
                (panels[next_panel], next_start + (stop - start) * tile // num_tiles, 0),
                step,
            )


@compiled()
def multiply_pair(
    x: NDArray[np.float32],
    panels: Panels,
    pair: tuple[int, int],
    following: tuple[int, int],
    workspace: NDArray[np.float32],
    result: NDArray[np.float32],
) -> None:
    """Like `multiply_panel`, but for two panels at once. The second panel's columns follow the first's.

    Args:
        x, panels: as in `multiply_panel`.
        pair: the indices of the two panels.
        following: the indices of the panels to fetch meanwhile.
        workspace: `[2, DEPTH / 2, PANEL]`. It is overwritten.
        result: `[T or more, 2 * PANEL]`. It is overwritten.
    """
    num_rows, num_columns = x.shape
    num_pieces = (num_columns + DEPTH // 2 - 1) // (DEPTH // 2)
    num_tiles = (num_rows + WIDE_ROWS - 1) // WIDE_ROWS
    step = (PANEL * panels.itemsize + num_tiles - 1) // num_tiles
    for piece in range(num_pieces):
        start, stop = num_columns * piece // num_pieces, num_columns * (piece + 1) // num_pieces
        more = piece + 1 < num_pieces
        next_pair, next_start = (pair, stop) if more else (following, 0)
        weights = as_float32(panels[pair[0]], start, stop, workspace[0])
        others = as_float32(panels[pair[1]], start, stop, workspace[1])
        for tile in range(num_tiles):
            top, bottom = num_rows * tile // num_tiles, num_rows * (tile + 1) // num_tiles
            ahead = next_start + (stop - start) * tile // num_tiles
            multiply_wide_tile(
                bottom - top,
                stop - start,
                (x, top, start),
                weights,
                others,
                (result, top, 0),
                start > 0,
                (panels[next_pair[0]], ahead, 0),
                (panels[next_pair[1]], ahead, 0),
                step,
            )


def _as_float32(panel, start, stop, workspace): ...


@overload(_as_float32)
def _as_float32_in_compiled_code(panel, start, stop, workspace):
    if panel.dtype == types.float32:
        return lambda panel, start, stop, workspace: (panel, start, 0)

    def widened(panel, start, stop, workspace):
        widen_rows(stop - start, (panel, start, 0), (workspace, 0, 0))
        return workspace, 0, 0

    return widened


as_float32 = cast(Callable[..., tuple[NDArray[np.float32], int, int]], _as_float32)
"""(panel `[in, PANEL]`, start, stop, workspace) -> the corner of the panel's rows start to stop, in float32.

bfloat16 weights are converted into `workspace` once, so they are not converted again for each tile.
"""
