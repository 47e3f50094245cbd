"""Draws one block of the pool as one cell of two columns."""

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
        levels: how full a block is, from nearly empty to nearly full.
        counts: number of holders of a block, from 2 on. The last character also means all greater numbers.
        cached, free, null: blocks that no sequence holds; see `BlockSnapshot.state`.
        bar_done, bar_left: the two parts of a progress bar.
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
"""For terminals whose encoding lacks the Unicode characters."""

_STATES = {
    "null": (lambda glyphs: glyphs.null, Style(dim=True)),
    "free": (lambda glyphs: glyphs.free, Style(dim=True)),
    "cached": (lambda glyphs: glyphs.cached, Style(bold=True)),
}
_NOBODY = Style(reverse=True)
_SHARED = Style(bold=True, underline=True)


def cell(block: BlockSnapshot, block_size: int, labels: Labels, glyphs: Glyphs) -> Text:
    """The cell of a block, `CELL_WIDTH` columns.

    A block in use has the letter and the colour of its first holder. If the block is full, the colour fills
    the cell. Otherwise a level next to the letter shows how full it is. If several sequences hold the block,
    their number is next to the letter, and the cell is underlined.
    """
    text = Text()  # no style here, since the parts would inherit it
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
    """A progress bar of `width` columns. A `share` outside 0 … 1 is cut to that range."""
    done = round(min(max(share, 0.0), 1.0) * width)
    return glyphs.bar_done * done + glyphs.bar_left * (width - done)
