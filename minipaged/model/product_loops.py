"""Matrix products with packed weights, as work that several threads share; compiled by numba.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from minipaged.cpu.compiled import compiled
from minipaged.cpu.instructions import take_part
from minipaged.cpu.numbers import kept, number
from minipaged.cpu.panel import PANEL
from minipaged.cpu.panels import multiply_panel, rows_at_once
from minipaged.model.cpu_loops import gate_row


@compiled()
def share_product(counter, num_parts, num_threads, x, panels, bias, residual, result):
    """Fill `result` with x Wᵀ + bias + residual, together with the other threads that call this.

    Args:
        counter: gives each thread the numbers of its parts, which are ranges of panels.
        num_parts: of them all.
        num_threads: about how many threads share the work.
        x: float32 `[T, in]`, its rows contiguous.
        panels: `[P, in, PANEL]`.
        bias: `[P * PANEL]`, or empty.
        residual: `[T, P * PANEL]`, or empty; it may be `result`.
        result: `[T, P * PANEL]`, written.
    """
    num_rows, num_columns = x.shape
    at_once = max(1, min(rows_at_once(num_columns), num_rows))
    tile = np.empty((at_once, PANEL), np.float32)
    while True:
        part = take_part(counter)
        if part >= num_parts:
            break
        begin, end, likely_next = _panels_of(part, num_parts, num_threads, len(panels))
        for first in range(0, num_rows, at_once):
            rows = x[first : first + at_once]
            for panel in range(begin, end):
                following = panel + 1 if panel + 1 < end else likely_next
                multiply_panel(rows, panels, panel, following, tile, 0)
                _write(tile[: len(rows)], bias, residual, first, panel * PANEL, result)


@compiled()
def share_gated_product(counter, num_parts, num_threads, x, panels, like, result):
    """Fill `result` with silu(gate) × up, where gate and up are x Wᵀ, together with the other threads.

    Args:
        counter, num_parts, num_threads, x: as in `share_product`.
        panels: `[2 * P, in, PANEL]`: first all of the gate's, then all of up's.
        like: an array of the model's numbers, to which all is rounded.
        result: float32 `[T, P * PANEL]`, written.
    """
    num_rows, num_columns = x.shape
    num_panels = len(panels) // 2
    at_once = max(1, min(rows_at_once(num_columns), num_rows))
    tile = np.empty((at_once, 2 * PANEL), np.float32)  # gate and up side by side
    while True:
        part = take_part(counter)
        if part >= num_parts:
            break
        begin, end, likely_next = _panels_of(part, num_parts, num_threads, num_panels)
        for first in range(0, num_rows, at_once):
            rows = x[first : first + at_once]
            for panel in range(begin, end):
                following = panel + 1 if panel + 1 < end else likely_next
                multiply_panel(rows, panels, panel, num_panels + panel, tile, 0)
                multiply_panel(rows, panels, num_panels + panel, following, tile, PANEL)
                for row in range(len(rows)):
                    gate_row(tile[row], like, result[first + row, panel * PANEL : (panel + 1) * PANEL])


@compiled()
def _panels_of(part, num_parts, num_threads, num_panels):
    """Where a part's panels begin and end, and where those probably begin that the thread takes next."""
    upcoming = min(part + num_threads, num_parts - 1)
    return (
        num_panels * part // num_parts,
        num_panels * (part + 1) // num_parts,
        num_panels * upcoming // num_parts,
    )


@compiled()
def _write(tile, bias, residual, top, left, result):
    """A tile `[R, PANEL]`, plus bias and residual, to its place in `result`."""
    for row in range(len(tile)):
        sums, target = tile[row], result[top + row, left : left + PANEL]
        if len(bias):
            for i in range(PANEL):
                sums[i] += number(bias[left + i])
        if len(residual):
            others = residual[top + row, left : left + PANEL]
            for i in range(PANEL):
                target[i] = kept(number(kept(sums[i], result)) + number(others[i]), result)
        else:
            for i in range(PANEL):
                target[i] = kept(sums[i], result)
