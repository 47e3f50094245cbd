"""Drawings for chapter 3: sequences, their block tables, and the pool, as in the paper's Fig. 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minipaged.course.figures import COLOURS, show
from minipaged.kv.size import blocks_needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL, _ROW = 1.0, 0.8  # width and height of a slot
_MIDDLE = (_ROW - 0.15) / 2  # the middle of a slot
_TABLE_X, _POOL_X = 5.6, 8.6
_FILLS = (COLOURS[1], COLOURS[0], COLOURS[2])
_LIGHT = "66"  # opacity


def draw_mapping(
    words: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[int]],
    *,
    block_size: int,
    num_blocks: int,
    title: str = "",
) -> None:
    """Draw logical blocks on the left, block tables in the middle, physical blocks on the right.

    Args:
        words: name of a sequence -> its tokens, as text.
        tables: name of a sequence -> its block table, which covers its tokens.
        block_size: tokens per block. The drawing is made for 4.
        num_blocks: blocks of the pool, the null block included.
        title: what the figure shows.
    """
    import matplotlib.pyplot as plt

    num_rows = max(num_blocks, sum(len(table) + 1 for table in tables.values()))
    made, axes = plt.subplots(figsize=(7.2, 0.36 * num_rows + 0.6), dpi=100, layout="constrained")
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=11)
    heads = (("logical blocks", 0.0), ("block table", _TABLE_X), ("physical blocks", _POOL_X))
    for text, x in heads:
        axes.text(x, _ROW * 1.3, text, fontsize=9, fontweight="bold")
    _draw_pool(axes, block_size, num_blocks)
    row = 0
    for number, (name, table) in enumerate(tables.items()):
        fill = _FILLS[number % len(_FILLS)] + _LIGHT
        axes.text(-0.6, -row * _ROW + _MIDDLE, name, fontweight="bold", ha="center", va="center")
        for logical in range(blocks_needed(len(words[name]), block_size)):
            tokens = words[name][logical * block_size : (logical + 1) * block_size]
            _draw_block(axes, 0.0, row, f"{logical}", tokens, block_size, fill)
            physical = table[logical]
            _draw_entry(axes, row, logical, physical, fill)
            _draw_block(axes, _POOL_X, physical, "", tokens, block_size, fill)
            axes.annotate(
                "",
                xy=(_POOL_X - 0.45, -physical * _ROW + _MIDDLE),
                xytext=(_TABLE_X + 1.3, -row * _ROW + _MIDDLE),
                arrowprops={"arrowstyle": "->", "color": "black", "linewidth": 0.8},
            )
            row += 1
        row += 1
    axes.set_xlim(-0.9, _POOL_X + block_size * _CELL + 0.2)
    axes.set_ylim(-num_rows * _ROW + 0.6, _ROW * 1.9)
    show(made, _in_words(words, tables, block_size, num_blocks))


def _in_words(
    words: Mapping[str, Sequence[str]], tables: Mapping[str, Sequence[int]], block_size: int, num_blocks: int
) -> str:
    lines = [f"A pool of {num_blocks} blocks of {block_size}, of which block 0 is the null block."]
    for name, table in tables.items():
        mapped = (
            f"logical block {logical} ({' '.join(words[name][logical * block_size :][:block_size])}) is "
            f"physical block {physical}"
            for logical, physical in enumerate(table)
        )
        lines.append(f"Sequence {name}: {'; '.join(mapped)}.")
    return " ".join(lines)


def _draw_pool(axes: Axes, block_size: int, num_blocks: int) -> None:
    for block_id in range(num_blocks):
        _draw_block(axes, _POOL_X, block_id, f"{block_id}", [], block_size, "white")
    width = block_size * _CELL
    _draw_cell(axes, _POOL_X, 0.0, width, "#E8E8E8")
    axes.text(
        _POOL_X + width / 2, _MIDDLE, "null block", fontsize=8, ha="center", va="center", style="italic"
    )


def _draw_entry(axes: Axes, row: int, logical: int, physical: int, fill: str) -> None:
    """Draw one entry of a block table, and the line from its logical block to it."""
    y = -row * _ROW
    _draw_cell(axes, _TABLE_X + 0.3, y, _CELL, fill)
    axes.text(_TABLE_X + 0.18, y + _MIDDLE, f"{logical}", fontsize=9, ha="right", va="center")
    axes.text(_TABLE_X + 0.8, y + _MIDDLE, f"{physical}", fontsize=9, ha="center", va="center")
    axes.plot((4.1, _TABLE_X - 0.25), (y + _MIDDLE, y + _MIDDLE), color="grey", linestyle=":", linewidth=0.8)


def _draw_cell(axes: Axes, x: float, y: float, width: float, fill: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, _ROW - 0.15, facecolor=fill, edgecolor="black", lw=0.7))


def _draw_block(
    axes: Axes, x: float, row: int, name: str, tokens: Sequence[str], block_size: int, fill: str
) -> None:
    y = -row * _ROW
    axes.text(x - 0.12, y + _MIDDLE, name, fontsize=9, ha="right", va="center")
    for offset in range(block_size):
        colour = fill if offset < len(tokens) else "white"
        _draw_cell(axes, x + offset * _CELL, y, _CELL, colour)
    for offset, token in enumerate(tokens):
        axes.text(x + (offset + 0.5) * _CELL, y + _MIDDLE, token, fontsize=7.5, ha="center", va="center")
