"""The matrix product with packed weights, compiled by numba.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

from minipaged.cpu.compiled import compiled, shared_work
from minipaged.cpu.instructions import as_array, pointer_to, take_part
from minipaged.cpu.panel import PANEL
from minipaged.cpu.tile import TILE_ROWS, multiply_tile

DEPTH = 192
"""Numbers of a row, at most, that are multiplied before the next rows are: so much of a panel (24 KB) stays
in a core's nearest cache while all rows go over it."""

ROWS_BYTES = 320 * 1024
"""Of x, at once: so much stays in a core's second cache, while all panels go over it."""


class ProductArguments(ctypes.Structure):
    """x `[T, in]` times packed weights `[num_panels, in, PANEL]` to result `[T, num_panels * PANEL]`.

    A part is a range of panels.
    """

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_parts", ctypes.c_int64),
        ("x", ctypes.c_int64),
        ("x_stride", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("num_columns", ctypes.c_int64),
        ("weights", ctypes.c_int64),
        ("num_panels", ctypes.c_int64),
        ("result", ctypes.c_int64),
    )


@compiled()
def multiply_panels(x, panels, result):
    """Fill `result` with x times the weights in `panels`.

    Args:
        x: float32 `[T, in]`, its rows contiguous.
        panels: `[P, in, PANEL]`, float32 or the bits of bfloat16, contiguous.
        result: float32 `[T, P * PANEL]`, written.
    """
    # From the outside: groups of rows (of which the second cache holds x), panels, pieces of a panel (which
    # the nearest cache holds), tiles (whose sums are in registers).
    num_rows, num_columns = x.shape
    num_pieces = (num_columns + DEPTH - 1) // DEPTH
    rows_at_once = max(TILE_ROWS, ROWS_BYTES // (4 * num_columns) // TILE_ROWS * TILE_ROWS)
    for first in range(0, num_rows, rows_at_once):
        rows = min(rows_at_once, num_rows - first)
        num_tiles = (rows + TILE_ROWS - 1) // TILE_ROWS
        step = (PANEL * panels.itemsize + num_tiles - 1) // num_tiles  # each tile fetches its share
        for panel in range(len(panels)):
            left = panel * PANEL
            for piece in range(num_pieces):
                start, stop = num_columns * piece // num_pieces, num_columns * (piece + 1) // num_pieces
                more = piece + 1 < num_pieces
                following_panel = panel if more else min(panel + 1, len(panels) - 1)
                following_start = stop if more else 0
                # Tiles of about the same height: for one of a single row the weights are loaded for little.
                for tile in range(num_tiles):
                    top, bottom = first + rows * tile // num_tiles, first + rows * (tile + 1) // num_tiles
                    multiply_tile(
                        bottom - top,
                        stop - start,
                        (x, top, start),
                        (panels[panel], start, 0),
                        (result, top, left),
                        start > 0,
                        (panels[following_panel], following_start + (stop - start) * tile // num_tiles, 0),
                        step,
                    )


@compiled()
def _take_panels(pointer, a, panels):
    """Takes parts until none is left."""
    x = as_array(pointer_to(a.x, "float32"), (a.num_rows, a.x_stride))[:, : a.num_columns]
    result = as_array(pointer_to(a.result, "float32"), (a.num_rows, a.num_panels * PANEL))
    while True:
        part = take_part(pointer)
        if part >= a.num_parts:
            break
        begin, end = a.num_panels * part // a.num_parts, a.num_panels * (part + 1) // a.num_parts
        multiply_panels(x, panels[begin:end], result[:, begin * PANEL : end * PANEL])


@shared_work(ProductArguments)
def product_float32(pointer):
    """The product with float32 weights."""
    a = as_array(pointer, 1)[0]
    panels = as_array(pointer_to(a.weights, "float32"), (a.num_panels, a.num_columns, PANEL))
    _take_panels(pointer, a, panels)


@shared_work(ProductArguments)
def product_bfloat16(pointer):
    """The same with bfloat16 weights."""
    a = as_array(pointer, 1)[0]
    panels = as_array(pointer_to(a.weights, "uint16"), (a.num_panels, a.num_columns, PANEL))
    _take_panels(pointer, a, panels)
