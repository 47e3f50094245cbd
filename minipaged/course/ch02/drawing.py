"""Drawings of regions, slot by slot, for messages and for the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from minipaged.baseline.region_allocator import Region


def draw_regions(taken: Mapping[str, Region], free: Iterable[object], num_slots: int) -> str:
    """Draw a small cache as a row of slots, with its free list in words.

    Args:
        taken: maps a letter to each region in use.
        free: the free list, whether right or wrong.
        num_slots: number of slots in the cache.

    >>> print(draw_regions({"A": Region(0, 4), "B": Region(6, 2)}, [Region(4, 2), Region(8, 4)], 12))
    slot   0         1
           012345678901
           AAAA..BB....
    free   4 to 5, 8 to 11
    """
    names: list[list[str]] = [[] for _ in range(num_slots)]
    free = list(free)
    runs = [each for each in free if isinstance(each, Region)]
    for name, region in [*taken.items(), *((".", each) for each in runs)]:
        for slot in range(max(0, region.start), min(num_slots, region.end)):
            names[slot].append(name[0])
    row = "".join("?" if not each else each[0] if len(each) == 1 else "!" for each in names)
    lines = [*ruler("slot", num_slots), f"       {row}".rstrip()]
    lines.append(f"free   {', '.join(_span(each) for each in free) or 'none'}")
    if "!" in row:
        lines.append("!      in two regions at once")
    if "?" in row:
        lines.append("?      neither held nor free: lost")
    for left, right in pairwise(runs):
        if left.end == right.start:
            lines.append(f"       {_span(left)} and {_span(right)} touch, and are not merged")
    return "\n".join(lines)


def draw_orders(free: Sequence[Iterable[int]], num_slots: int) -> str:
    """Draw the free blocks of a buddy allocator, one line for each size, and the slots that are held.

    Each block is drawn with its ends, so that two buddies that were not merged can be told apart.

    >>> print(draw_orders([set(), {2, 4, 6}, set(), set()], 8))
    slot   0
           01234567
    of 2     [][][]
    held   ##
    """
    lines = ruler("slot", num_slots)
    held = ["#"] * num_slots
    for order in reversed(range(len(free))):
        row = [" "] * num_slots
        for start in free[order]:
            block = "." if order == 0 else f"[{'.' * (2**order - 2)}]"
            for slot in range(max(0, start), min(num_slots, start + 2**order)):
                row[slot], held[slot] = block[slot - start], " "
        if any(mark != " " for mark in row):
            lines.append(f"of {2**order:<4}{''.join(row)}".rstrip())
    return "\n".join([*lines, f"held   {''.join(held)}".rstrip()])


def ruler(label: str, num_slots: int) -> list[str]:
    """Two lines of column numbers."""
    tens = "".join(str(slot // 10 % 10) if slot % 10 == 0 else " " for slot in range(num_slots))
    return [f"{label:<7}{tens}".rstrip(), f"       {''.join(str(slot % 10) for slot in range(num_slots))}"]


def _span(region: object) -> str:
    if not isinstance(region, Region):
        return f"{region!r:.40} (not a Region)"
    if region.num_slots < 1:
        return f"an empty region at {region.start}"
    return f"{region.start} to {region.end - 1}"
