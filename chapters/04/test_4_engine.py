"""Chapter 4 in the engine, with the reader's code."""

from __future__ import annotations

import pytest

from minipaged.course.expect import expect
from minipaged.course.seams import ResolvedParts


@pytest.mark.in_engine
def test_your_blocks_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged import BeamSearchParams, SamplingParams
    from minipaged.course.ch04.beams import expect_beams
    from minipaged.course.in_engine import run_in_engine

    # Only the most likely token can be sampled, so samples are greedy and can be compared with the oracle.
    samples = SamplingParams(n=3, top_k=1, max_tokens=12, ignore_eos=True)
    engine = run_in_engine(resolved, stage=4, block_size=4, num_blocks=160, params=samples)
    stats = engine.stats()
    expect(
        stats.num_copied_blocks > 0 and stats.sharing_saving > 0,
        case="three prompts with three samples each, in blocks of 4",
        rule="samples share their prompt's blocks, and copy the last one",
        expected="some blocks copied, and some saved",
        got=f"{stats.num_copied_blocks} blocks copied, {stats.sharing_saving:.0%} saved",
    )
    # Beams differ in their tokens, so a beam that read another one's blocks would give other tokens.
    expect_beams(resolved, BeamSearchParams(beam_width=4, max_tokens=14, ignore_eos=True))
