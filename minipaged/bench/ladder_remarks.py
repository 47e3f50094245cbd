"""Remarks on the results of a ladder. Most say which stages gained nothing, and why.

Each remark follows from the measurements. A reason that was not measured is called a guess.
"""

from __future__ import annotations

from itertools import pairwise

from minipaged.bench.ladder import STAGE_NAMES, WorkloadResult
from minipaged.bench.stage_run import StageResult

LEAST_GAIN = 0.03
"""A stage gets a remark if it gained less than this share in tokens per second."""

GROWTH = 1.05
"""A batch counts as grown if it is larger by this factor."""


def remarks(result: WorkloadResult) -> list[str]:
    """A list with one line for each stage whose gain over the previous stage is zero or within the noise."""
    lines: list[str] = []
    steps = [(a, b) for a, b in pairwise(result.stages) if b.stage == a.stage + 1]
    noise = max((abs(_gain(a, b)) for a, b in steps if _did_the_same(a, b)), default=None)
    for before, after in steps:
        name = f"Stage {after.stage} ({STAGE_NAMES[after.stage]})"
        gain = _gain(before, after)
        if _did_the_same(before, after):
            lines.append(f"{name} did the same work as stage {before.stage}. {_why_the_same(after)}")
        elif gain < max(LEAST_GAIN, noise or 0.0):
            within = ", which is within the noise" if abs(gain) < (noise or 0.0) else ""
            change = f"{gain:+.1%} tokens/s over stage {before.stage}{within}"
            lines.append(f"{name}: {change}. {_reason(before, after)}")
        elif after.stage == 7 and after.num_preemptions:
            lines.append(f"{name} has a price: {_price(before, after)}.")
    if noise is not None:
        lines.append(
            f"Stages that did the same work are up to {noise:.1%} apart in tokens/s. That is the noise of "
            "this machine: smaller differences mean nothing."
        )
    return lines


def _gain(before: StageResult, after: StageResult) -> float:
    return after.tokens_per_second / before.tokens_per_second - 1


def _did_the_same(before: StageResult, after: StageResult) -> bool:
    """Whether both stages computed the same steps with the same kernels.

    This happens when the later stage's new feature had nothing to do. Stages 2, 3 and 5 compute every step
    differently from the stage before, so the result is always False for them.
    """
    return (
        after.stage in (4, 6, 7, 8)
        and before.num_steps == after.num_steps
        and before.mean_batch == after.mean_batch
        and before.num_copied_blocks == after.num_copied_blocks
        and after.prefix_cache_hits == 0
        # A preempted request finds its own blocks in the cache again. These do not count as hits.
        and (after.stage < 8 or after.num_preemptions == 0)
    )


def _why_the_same(after: StageResult) -> str:
    match after.stage:
        case 4:
            return (
                "Every request has one sample, so there was nothing to share and nothing to copy. Sharing "
                "pays off with parallel samples and beams."
            )
        case 6:
            return "No place in the batch became free while other requests waited."
        case 7:
            return "No request waited for memory that stage 6 reserves, and no request was preempted."
        case _:
            return (
                f"0 of {after.prefix_cache_queries:,} prompt tokens were found in the cache: no two prompts "
                "have the same first block."
            )


def _reason(before: StageResult, after: StageResult) -> str:
    """The reason why a stage may have gained nothing, in words."""
    batch = f"{before.mean_batch:.1f} → {after.mean_batch:.1f} requests in the batch"
    num_steps = f"{before.num_steps:,} → {after.num_steps:,} steps"
    step_time = f"each step took {_milliseconds(before):.2f} → {_milliseconds(after):.2f} ms"
    grew = after.mean_batch > GROWTH * before.mean_batch
    match after.stage:
        case 2:
            return (
                "Computing a whole sequence again for each token costs little when sequences are this "
                "short. The cache's gain grows with their length."
            )
        case 3 if grew:
            return (
                f"Paging buys memory, not speed: {batch}, in {num_steps}, but {step_time}. The longer steps "
                "cost at least as much time as the larger batch saves."
            )
        case 3:
            return f"Paging buys memory, but more memory did not help: {batch}. Memory was not scarce."
        case 4:
            return "Sharing pays off with parallel samples and beams, but here every request has one sample."
        case 5:
            return (
                "Only attention is computed in another way. A guess: with sequences this short, attention "
                "is a small part of a step."
            )
        case 6 if grew:
            return (
                f"No request waits for the longest output of a batch: {batch}, in {num_steps}. But "
                f"{step_time}."
            )
        case 6:
            return f"{batch}: no place in a batch stayed empty for long, so there was little to fill."
        case 7 if not grew:
            return (
                f"{batch}: outputs here reach their max_tokens, so the memory that stage 6 reserves is "
                "needed in the end. Admitting more requests than surely fit pays off when outputs end early."
            )
        case 7 if after.num_preemptions:
            return f"{batch}, but {step_time}, and {_price(before, after)}."
        case 7:
            return f"{batch}, but {step_time}."
        case _ if after.prefix_cache_hits:
            return (
                f"{after.prefix_cache_hits:,} of {after.prefix_cache_queries:,} prompt tokens were found in "
                f"the cache: few compared with {after.num_output_tokens:,} output tokens, which must always "
                "be computed."
            )
        case _:
            return (
                f"0 of {after.prefix_cache_queries:,} prompt tokens were found in the cache: no two prompts "
                "have the same first block."
            )


def _price(before: StageResult, after: StageResult) -> str:
    price = f"because of {after.num_preemptions:,} preemptions some tokens were computed twice"
    if before.tpot is None or after.tpot is None:
        return price
    slowest = f"{1000 * before.tpot.p99:.1f} → {1000 * after.tpot.p99:.1f} ms"
    return f"{price}; the 99th percentile of the time per output token went {slowest}"


def _milliseconds(result: StageResult) -> float:
    """The mean time of a step."""
    return 1000 * result.seconds / result.num_steps
