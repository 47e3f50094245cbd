"""The pictures of chapter 4: block tables above, physical blocks with their counts below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minipaged.course.figures import COLOURS, figure, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 1.0  # width of a block
_TABLE_WIDTH = 0.45  # width of a table's entry


def draw_sharing(
    title: str,
    tables: Mapping[str, Sequence[int]],
    ref_cnt: Mapping[int, int],
    words: Mapping[int, Sequence[str]],
) -> None:
    """Draw each table with arrows to its blocks. A shared block is hatched.

    Args:
        title: a sentence.
        tables: by the name of the sequence.
        ref_cnt: the counts of the blocks to draw, in the order of the drawing.
        words: what the blocks hold.
    """
    from matplotlib.patches import Rectangle

    made, axes = figure(title, "", "", height=3.1)
    axes.axis("off")
    places = {block: 1.35 * i for i, block in enumerate(ref_cnt)}
    for block, left in places.items():
        shared = ref_cnt[block] > 1
        colour, hatch = (COLOURS[0], "///") if shared else (COLOURS[1], "")
        axes.add_patch(
            Rectangle((left, 0), _WIDTH, 1, facecolor=colour, hatch=hatch, edgecolor="white", alpha=0.55)
        )
        axes.add_patch(Rectangle((left, 0), _WIDTH, 1, fill=False))
        axes.text(left + _WIDTH / 2, 0.5, "\n".join(words[block]), ha="center", va="center", fontsize=9)
        axes.text(left + _WIDTH / 2, -0.1, f"block {block}", ha="center", va="top", fontsize=9)
        axes.text(
            left + _WIDTH / 2,
            -0.28,
            f"count {ref_cnt[block]}",
            ha="center",
            va="top",
            fontsize=9,
            fontweight="bold" if shared else "normal",
        )
    right = max(places.values()) + _WIDTH
    room = right / len(tables)
    for i, (name, table) in enumerate(tables.items()):
        _draw_table(axes, name, table, places, i * room + (room - _TABLE_WIDTH * len(table)) / 2, i)
    axes.set_xlim(-0.1, right + 0.1)
    axes.set_ylim(-0.45, 2.35)
    named = (f"{name}'s table names blocks {', '.join(map(str, table))}" for name, table in tables.items())
    held = (f"block {b} ({' '.join(words[b])}) has count {count}" for b, count in ref_cnt.items())
    show(made, f"Arrows from block tables to blocks: {'; '.join(named)}. Below: {'; '.join(held)}.")


def _draw_table(
    axes: Axes, name: str, table: Sequence[int], places: Mapping[int, float], left: float, number: int
) -> None:
    from matplotlib.patches import Rectangle

    axes.text(left - 0.06, 2.07, name, ha="right", va="center", fontsize=10)
    for i, block in enumerate(table):
        start = left + i * _TABLE_WIDTH
        axes.add_patch(Rectangle((start, 1.95), _TABLE_WIDTH, 0.25, fill=False))
        axes.text(start + _TABLE_WIDTH / 2, 2.07, str(block), ha="center", va="center", fontsize=9)
        axes.annotate(
            "",
            xy=(places[block] + _WIDTH * (0.35 + 0.3 * number), 1.02),
            xytext=(start + _TABLE_WIDTH / 2, 1.94),
            arrowprops={"arrowstyle": "->", "linestyle": ("-", "--", ":", "-.")[number % 4]},
        )
