"""Drawings of block tables and pools in plain text, for messages and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MOST_FREE = 16
"""How many blocks of a free list are drawn, counted from its front."""


def draw_tables(
    tables: Mapping[str, Sequence[int]],
    ref_cnt: Sequence[int] | Mapping[int, int] | None = None,
    *,
    free: Sequence[int] | None = None,
    note: str = "",
) -> str:
    """Draw block tables, and the reference count of each block in them.

    Args:
        tables: maps a sequence's name to its block ids.
        ref_cnt: counts by block id. A count is marked if it differs from the number of tables that name the
            block.
        free: the free list, if there is one.
        note: the text of a last line.

    >>> print(draw_tables({"A": [7, 1], "B": [7, 3]}, {7: 2, 1: 2, 3: 1}))
    A      7   1
    B      7   3
    <BLANKLINE>
    block  1   3   7
    count  2   1   2
    named  1   1   2
           ^
    """
    width = max([5, *(len(name) for name in tables)])
    lines = [f"{name:<{width}}  {_cells(ids)}".rstrip() for name, ids in tables.items()]
    named = [block for ids in tables.values() for block in ids]
    if ref_cnt is not None:
        counts = dict(ref_cnt) if isinstance(ref_cnt, Mapping) else dict(enumerate(ref_cnt))
        blocks = sorted({b for b, count in counts.items() if count} | set(named))
        if not isinstance(ref_cnt, Mapping) and 0 not in named:
            blocks = [block for block in blocks if block != 0]  # block 0 is the null block
        held = [named.count(block) for block in blocks]
        kept = [counts.get(block, 0) for block in blocks]
        marks = ["^" if a != b else "" for a, b in zip(held, kept, strict=True)]
        lines += ["", f"{'block':<{width}}  {_cells(blocks)}", f"{'count':<{width}}  {_cells(kept)}"]
        lines += [f"{'named':<{width}}  {_cells(held)}"]
        if any(marks):
            lines.append(f"{'':<{width}}  {_cells(marks)}".rstrip())
    if free is not None:
        more = f"  … {len(free) - _MOST_FREE:,} more" if len(free) > _MOST_FREE else ""
        lines.append(f"{'free':<{width}}  {_cells(free[:_MOST_FREE])}{more}".rstrip())
    if note:
        lines.append(note)
    return "\n".join(line.rstrip() for line in lines)


def draw_slots(regions: Sequence[tuple[str, int]], num_slots: int, width: int = 64) -> str:
    """Draw runs of slots as one bar, with a legend. Even a short run gets a character.

    Args:
        regions: the name and the number of slots of each run, in the order of their addresses.
        num_slots: number of slots in all. Slots after the last region are free.
        width: the bar's width in characters.

    >>> print(draw_slots([("A", 8), ("-", 4), ("B", 4)], 32, width=16))
    |AAAA--BB........|
     A 8   - 4   B 4   . 16   of 32 slots
    """
    left = num_slots - sum(slots for _, slots in regions)
    runs = [(name, slots) for name, slots in [*regions, (".", left)] if slots > 0]
    widths = [max(1, round(slots / num_slots * width)) for _, slots in runs]
    if runs:
        longest = widths.index(max(widths))
        widths[longest] = max(1, widths[longest] + width - sum(widths))
    bar = "".join(name[0] * cells for (name, _), cells in zip(runs, widths, strict=True))
    legend = "   ".join(f"{name} {slots:,}" for name, slots in runs)
    return f"|{bar}|\n {legend}   of {num_slots:,} slots"


def _cells(values: Sequence[object]) -> str:
    width = max([3, *(len(str(value)) for value in values)])
    return " ".join(f"{value!s:<{width}}" for value in values).rstrip()
