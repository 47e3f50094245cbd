"""`multiply_panel`: many rows of x times one panel of weights, tile by tile.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minipaged.cpu.compiled import compiled
from minipaged.cpu.panel import PANEL
from minipaged.cpu.tile import TILE_ROWS, multiply_tile

DEPTH = 192
"""Numbers of a row, at most, that are multiplied before the next rows are: so much of a panel (24 KB) stays
in a core's nearest cache while all rows go over it."""

ROWS_BYTES = 320 * 1024
"""Of x, at once: so much stays in a core's second cache, while all panels go over it."""


@compiled()
def rows_at_once(num_columns: int) -> int:
    """How many rows of x, at most, should go over all panels together."""
    return max(TILE_ROWS, ROWS_BYTES // (4 * num_columns) // TILE_ROWS * TILE_ROWS)


@compiled()
def multiply_panel(
    x: NDArray[np.float32],
    panels: NDArray[np.float32] | NDArray[np.uint16],
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
