"""The drawings of allocators' arguments in chapter 2's messages."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.baseline.region_allocator import Region
from minipaged.course.ch02.drawing import draw_orders, draw_regions


def draw_call(name: str, arguments: Mapping[str, object]) -> str:
    """Draw the free list before the call; empty for functions without a free list."""
    free = arguments.get("free")
    if not isinstance(free, list):
        return ""
    if name.endswith("_buddy"):
        return draw_orders(free, 2 ** (len(free) - 1) if free else 0)
    given = arguments.get("region")
    known = [each for each in [*free, given] if isinstance(each, Region)]
    num_slots = max([8, *(each.end for each in known)])
    held: dict[str, Region] = {}
    for slot in range(num_slots):
        if not any(each.start <= slot < each.end for each in free):
            held[f"#{slot}"] = Region(slot, 1)
    return draw_regions(held, free, num_slots)
