"""Many rows of x times a panel of weights (`multiply_panel`) or two at once (`multiply_pair`), tile by tile.

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
"""Numbers of a row, at most, that are multiplied before the next rows are: so much of a panel (24 KB) stays
in a core's nearest cache while all rows go over it. Of a pair of panels, half of it."""

ROWS_BYTES = 320 * 1024
"""Of x, at once: so much stays in a core's second cache, while all panels go over it."""


@compiled()
def rows_at_once(num_columns: int) -> int:
    """How many rows of x, at most, should go over all panels together."""
    return max(TILE_ROWS, ROWS_BYTES // (4 * num_columns) // TILE_ROWS * TILE_ROWS)


@compiled()
def pairs_pay(num_rows: int, panels: Panels) -> bool:
    """Whether to multiply panels in pairs: from where on the rows fill more than one tile. Two, if the
    weights have to be widened first."""
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
        panel: which one.
        following: the one that is multiplied next: it is fetched into the caches meanwhile.
        result: `[T or more, column + PANEL or more]`, written.
        column: the first of its columns.
    """
    # From the outside: pieces of a panel (the nearest cache holds one), tiles (their sums are in registers).
    num_rows, num_columns = x.shape
    num_pieces = (num_columns + DEPTH - 1) // DEPTH
    num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
    step = (PANEL * panels.itemsize + num_tiles - 1) // num_tiles  # each tile fetches its share
    for piece in range(num_pieces):
        start, stop = num_columns * piece // num_pieces, num_columns * (piece + 1) // num_pieces
        more = piece + 1 < num_pieces
        next_panel, next_start = (panel, stop) if more else (following, 0)
        # Tiles of about the same height: for one of a single row the weights are loaded for little.
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
    """`multiply_panel` of two panels at once: the second one's columns of `result` are next to the first's.

    Args:
        x, panels: as there, if `pairs_pay`.
        pair: which ones.
        following: those that are fetched meanwhile.
        workspace: `[2, DEPTH / 2, PANEL]`, written.
        result: `[T or more, 2 * PANEL]`, written.
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
"""(panel `[in, PANEL]`, start, stop, workspace) -> the corner of its weights from start to stop, as float32.

Those of bfloat16 are written to `workspace`: so they are converted once, and not for each tile.
"""
