"""One block of the pool as one cell of two columns."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from minipaged.view.labels import Labels
from minipaged.view.pool_snapshot import BlockSnapshot

CELL_WIDTH = 2


@dataclass(frozen=True)
class Glyphs:
    """The characters of the view.

    Attributes:
        levels: how full a block is, from hardly to almost.
        counts: how many hold a block, from 2 on; the last one stands for all greater numbers too.
        bar_done, bar_left: of a progress bar.
    """

    levels: str
    counts: str
    cached: str
    free: str
    null: str
    bar_done: str
    bar_left: str


UNICODE = Glyphs(
    levels="▁▂▃▄▅▆▇", counts="²³⁴⁵⁶⁷⁸⁹⁺", cached="◌", free="·", null="ø", bar_done="━", bar_left="┄"
)
ASCII = Glyphs(
    levels="_.:-=+#", counts="23456789+", cached="o", free=".", null="0", bar_done="#", bar_left="-"
)
"""For terminals whose encoding has nothing better."""

_STATES = {
    "null": (lambda glyphs: glyphs.null, Style(dim=True)),
    "free": (lambda glyphs: glyphs.free, Style(dim=True)),
    "cached": (lambda glyphs: glyphs.cached, Style(bold=True)),
}
_NOBODY = Style(reverse=True)
_SHARED = Style(bold=True, underline=True)


def cell(block: BlockSnapshot, block_size: int, labels: Labels, glyphs: Glyphs) -> Text:
    """The cell of a block, `CELL_WIDTH` columns.

    A block in use has the letter and the colour of its first holder. If it is full, the colour
    fills the cell; if not, a level beside the letter shows how far it is. If several hold it, their
    number stands beside the letter, and the cell is underlined.
    """
    text = Text()  # without a style of its own, which the parts would inherit
    if block.state != "used":
        glyph, style = _STATES[block.state]
        return text.append(glyph(glyphs).ljust(CELL_WIDTH), style)
    if not block.holders:
        return text.append("?".ljust(CELL_WIDTH), _NOBODY)
    label = labels[block.holders[0]]
    full = block.num_filled == block_size
    if block.is_shared:
        mark = glyphs.counts[min(len(block.holders) - 2, len(glyphs.counts) - 1)]
    else:
        mark = " " if full else glyphs.levels[block.num_filled * len(glyphs.levels) // block_size]
    emphasis = _SHARED if block.is_shared else Style.null()
    text.append(label.letter, label.solid + emphasis)
    return text.append(mark, (label.solid if full else label.outline) + emphasis)


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A progress bar of `width` columns; `share` is cut to 0 … 1."""
    done = round(min(max(share, 0.0), 1.0) * width)
    return glyphs.bar_done * done + glyphs.bar_left * (width - done)
