"""Chapter 1 in the engine, with the reader's code."""

from __future__ import annotations

import pytest

from minipaged.course.expect import expect, expect_equal
from minipaged.course.seams import ResolvedParts


@pytest.mark.in_engine
def test_your_sizes_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import run_in_engine

    memory = 3 * 2**20
    engine = run_in_engine(resolved, num_blocks=None, kv_cache_memory_bytes=memory, block_size=16)
    plan = engine.memory_plan
    expect_equal(
        plan.kv_cache_bytes,
        engine.kv_cache.data.nbytes,
        case=f"{plan.num_blocks} blocks of {plan.bytes_per_block:,} bytes, compared with the engine's tensor",
        rule="PyTorch allocates as many bytes as the plan says",
    )
    unused = memory - engine.kv_cache.data.nbytes
    expect(
        0 <= unused < engine.memory_plan.bytes_per_block,
        case=f"a pool in {memory:,} bytes",
        rule="the pool fits into its memory, and one more block would not fit",
        expected=f"0 to {engine.memory_plan.bytes_per_block - 1:,} bytes unused",
        got=f"{unused:,} bytes unused",
    )
