"""Matrix products with weights in panels (see `panel_linear.py`), as work that several threads share.

Importing this module imports numba.
"""

from __future__ import annotations

from minipaged.cpu.compiler.compiled import compiled
from minipaged.cpu.compiler.instructions import address_of, aligned, take_part
from minipaged.cpu.products.panels import DEPTH, multiply_pair, multiply_panel, pairs_pay, rows_at_once
from minipaged.cpu.products.tile import PANEL
from minipaged.cpu.products.tile_rows import gate_rows, write_rows


@compiled()
def share_product(counter, num_threads, x, panels, bias, residual, result):
    """Fill `result` with x Wᵀ + bias + residual, together with the other threads that call this.

    Args:
        counter: gives each thread the numbers of its parts. A part is a panel or a pair of panels.
        num_threads: about how many threads share the work.
        x: float32 `[T, in]`, its rows contiguous.
        panels: `[P, in, PANEL]`.
        bias: `[P * PANEL]`, or empty.
        residual: `[T, P * PANEL]`, or empty. It may be the same array as `result`.
        result: `[T, P * PANEL]`. It is overwritten.
    """
    num_rows, num_columns = x.shape
    at_once, tile, workspace = _workspaces_for(num_rows, num_columns)
    num_pairs = _pairs_of(num_rows, panels, num_threads)
    num_parts = len(panels) - num_pairs
    while True:
        part = take_part(counter)
        if part >= num_parts:
            break
        first, second = _panels_of(part, num_pairs)
        following = _panels_of(min(part + num_threads, num_parts - 1), num_pairs)
        for top in range(0, num_rows, at_once):
            rows = x[top : top + at_once]
            if first < second:
                multiply_pair(rows, panels, (first, second), following, workspace, tile)
            else:
                multiply_panel(rows, panels, first, following[0], tile, 0)
            for panel in range(first, second + 1):
                left = panel * PANEL
                write_rows(
                    len(rows),
                    (tile, 0, (panel - first) * PANEL),
                    address_of(bias) + left * bias.itemsize if len(bias) else 0,
                    (residual, top, left),
                    len(residual) > 0,
                    (result, top, left),
                )


@compiled()
def share_gated_product(counter, num_threads, x, panels, like, result):
    """Fill `result` with silu(gate) × up, together with the other threads.

    The product x Wᵀ gives gate and up, one after the other.

    Args:
        counter, num_threads, x: as in `share_product`.
        panels: `[2 * P, in, PANEL]`: first all panels of gate, then all panels of up.
        like: an array in the model's dtype, to which results are rounded.
        result: float32 `[T, P * PANEL]`. It is overwritten.
    """
    num_rows, num_columns = x.shape
    num_parts = len(panels) // 2
    at_once, tile, workspace = _workspaces_for(num_rows, num_columns)
    while True:
        part = take_part(counter)
        if part >= num_parts:
            break
        upcoming = min(part + num_threads, num_parts - 1)
        pair, following = (part, num_parts + part), (upcoming, num_parts + upcoming)
        for top in range(0, num_rows, at_once):
            rows = x[top : top + at_once]
            if pairs_pay(num_rows, panels):
                multiply_pair(rows, panels, pair, following, workspace, tile)
            else:
                multiply_panel(rows, panels, pair[0], pair[1], tile, 0)
                multiply_panel(rows, panels, pair[1], following[0], tile, PANEL)
            gate_rows(len(rows), (tile, 0, 0), like, (result, top, part * PANEL))


@compiled()
def _workspaces_for(num_rows, num_columns):
    """How many rows of x are multiplied together, and the memory for it.

    The memory is float32 `[rows, 2 * PANEL]` for the results of a pair of panels, and the workspace of
    `multiply_pair`.
    """
    at_once = max(1, min(rows_at_once(num_columns), num_rows))
    tile = aligned(at_once * 2 * PANEL).reshape(at_once, 2 * PANEL)
    return at_once, tile, aligned(DEPTH * PANEL).reshape(2, DEPTH // 2, PANEL)


@compiled()
def _pairs_of(num_rows, panels, num_threads):
    """How many pairs of panels to make.

    Each thread gets the same number of pairs. Each remaining panel is a part of its own, so that all threads
    have about the same work.
    """
    return len(panels) // (2 * num_threads) * num_threads if pairs_pay(num_rows, panels) else 0


@compiled()
def _panels_of(part, num_pairs):
    """The first and the last panel of a part. Parts that are pairs come first."""
    if part < num_pairs:
        return 2 * part, 2 * part + 1
    return num_pairs + part, num_pairs + part
