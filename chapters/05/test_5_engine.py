"""Chapter 5 in the engine, with the reader's code: a few tokens, since kernels may be interpreted."""

from __future__ import annotations

import pytest

from minipaged.course.seams import ResolvedParts


@pytest.mark.in_engine
def test_your_kernels_in_the_engine(resolved: ResolvedParts) -> None:
    from minipaged.course.in_engine import PROMPTS, run_in_engine
    from minipaged.sampling.params import SamplingParams

    greedy = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    short, long = PROMPTS[1:]  # the long one has two blocks
    run_in_engine(
        resolved, stage=5, params=greedy, prompts=(short, long), may_be_idle=("paged_decode_split",)
    )
    run_in_engine(resolved, stage=5, params=greedy, prompts=(long,))
