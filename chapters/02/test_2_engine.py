"""Chapter 2 in the engine, with the reader's code."""

from __future__ import annotations

import pytest

from minipaged.config import EngineConfig
from minipaged.course.expect import expect_equal
from minipaged.course.seams import ResolvedParts
from minipaged.options import EngineOptions


@pytest.mark.in_engine
def test_your_regions_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine

    # Only one or two requests fit at a time, so that regions are freed and allocated again.
    for options in (
        EngineOptions(reserve="oracle", region_allocator="first_fit", num_blocks=28),
        EngineOptions(reserve="pow2", region_allocator="buddy", num_blocks=32),
    ):
        options = EngineOptions(**(options | EngineOptions(block_size=4, batching="continuous")))
        used = resolved.used_by(EngineConfig.at_stage(2, **options))
        if not used.written:
            continue  # the reader has written only the other allocator
        breakdown = run_in_engine(used, stage=2, **options).memory_breakdown()
        expect_equal(
            breakdown.free,
            breakdown.num_slots,
            case=f"slots that are free when all requests have ended, with {options.get('region_allocator')}",
            rule="every allocated region is freed",
        )
