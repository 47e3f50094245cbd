"""Chapter 3 in the engine, with the reader's code."""

from __future__ import annotations

from itertools import pairwise

import pytest

from minipaged.course.expect import expect, expect_equal
from minipaged.course.seams import ResolvedParts


@pytest.mark.in_engine
def test_your_blocks_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine
    from minipaged.engine.llm_engine import LLMEngine

    held: list[int] = []

    def after_step(engine: LLMEngine) -> None:
        engine.check_invariants()
        stats = engine.stats()
        held.append(stats.num_blocks - 1 - stats.num_free_blocks)

    engine = run_in_engine(resolved, stage=3, block_size=4, after_step=after_step)
    case = f"blocks held after each of {len(held)} steps: {held}"
    expect(
        all(b - a <= 3 for a, b in pairwise(held)) and held[0] < max(held),
        case=case,
        rule="growth on demand: each of the three sequences gets a block only when its last block is full",
    )
    stats = engine.stats()
    expect_equal(
        stats.num_free_blocks,
        stats.num_blocks - 1,
        case="free blocks after the last request",
        rule="all blocks but the null block are back in the free list",
    )
