"""What the numbers of a ladder say, in words: above all where a stage gained nothing, and why.

Each remark follows from what was measured. A reason that was not measured is called a guess.
"""

from __future__ import annotations

from itertools import pairwise

from minipaged.bench.ladder import STAGE_NAMES, WorkloadResult
from minipaged.bench.stage_run import StageResult

LEAST_GAIN = 0.03
"""A stage that gained less than this share in tokens per second is remarked on."""

GROWTH = 1.05
"""A batch has grown if it is larger by this factor."""


def remarks(result: WorkloadResult) -> list[str]:
    """One line for each stage that gained nothing over the one before it, or no more than the noise."""
    lines: list[str] = []
    steps = [(a, b) for a, b in pairwise(result.stages) if b.stage == a.stage + 1]
    noise = max((abs(_gain(a, b)) for a, b in steps if _did_the_same(a, b)), default=None)
    for before, after in steps:
        name = f"Stage {after.stage} ({STAGE_NAMES[after.stage]})"
        gain = _gain(before, after)
        if _did_the_same(before, after):
            lines.append(f"{name} did the work of stage {before.stage} once more. {_why_the_same(after)}")
        elif gain < max(LEAST_GAIN, noise or 0.0):
            within = ", which is within the noise" if abs(gain) < (noise or 0.0) else ""
            change = f"{gain:+.1%} tokens/s over stage {before.stage}{within}"
            lines.append(f"{name}: {change}. {_reason(before, after)}")
        elif after.stage == 7 and after.num_preemptions:
            lines.append(f"{name} has a price: {_price(before, after)}.")
    if noise is not None:
        lines.append(
            f"Stages that did the same work are up to {noise:.1%} apart in tokens/s. That is how well this "
            "machine repeated itself, and differences below that mean nothing."
        )
    return lines


def _gain(before: StageResult, after: StageResult) -> float:
    return after.tokens_per_second / before.tokens_per_second - 1


def _did_the_same(before: StageResult, after: StageResult) -> bool:
    """Whether the later stage's part had nothing to do, so that both computed the same steps on the same
    kernels. (Stages 3 and 5 change what computes a step.)"""
    return (
        after.stage in (4, 6, 7, 8)
        and before.num_steps == after.num_steps
        and before.mean_batch == after.mean_batch
        and before.num_copied_blocks == after.num_copied_blocks
        and after.prefix_cache_hits == 0
        # One that was preempted finds its own blocks again, which does not count as a hit.
        and (after.stage < 8 or after.num_preemptions == 0)
    )


def _why_the_same(after: StageResult) -> str:
    match after.stage:
        case 4:
            return (
                "Every request has one sample, so there was nothing to share and nothing to copy: sharing "
                "pays with parallel samples and beams."
            )
        case 6:
            return "No place in the batch became free while others waited."
        case 7:
            return "Nobody waited for memory that stage 6 sets aside, and nobody was preempted."
        case _:
            return (
                f"0 of {after.prefix_cache_queries:,} prompt tokens were found in the cache: no two prompts "
                "begin alike for a whole block."
            )


def _reason(before: StageResult, after: StageResult) -> str:
    """Why a stage may have gained nothing."""
    batch = f"{before.mean_batch:.1f} → {after.mean_batch:.1f} requests in the batch"
    num_steps = f"{before.num_steps:,} → {after.num_steps:,} steps"
    step_time = f"each step took {_milliseconds(before):.2f} → {_milliseconds(after):.2f} ms"
    grew = after.mean_batch > GROWTH * before.mean_batch
    match after.stage:
        case 2:
            return (
                "Computing every sequence anew for each token costs little while sequences are this short: "
                "the cache's gain grows with their length."
            )
        case 3 if grew:
            return (
                f"Paging buys memory, not speed: {batch}, in {num_steps}, but {step_time}. A larger batch "
                "costs as much more as it brings."
            )
        case 3:
            return f"Paging buys memory, and more of it did not help: {batch}. Memory was not scarce."
        case 4:
            return "Sharing pays with parallel samples and beams, and here every request has one sample."
        case 5:
            return (
                "Attention alone is computed otherwise. A guess: with sequences this short it is a small "
                "part of a step."
            )
        case 6 if grew:
            return (
                f"Nobody waits for the longest output of a batch: {batch}, in {num_steps}. But {step_time}."
            )
        case 6:
            return f"{batch}: no place in a batch stayed empty for long, so there was little to fill."
        case 7 if not grew:
            return (
                f"{batch}: outputs here reach their max_tokens, so what stage 6 sets aside is needed in the "
                "end. Admitting more than surely fits pays where outputs end early."
            )
        case 7 if after.num_preemptions:
            return f"{batch}, but {step_time}, and {_price(before, after)}."
        case 7:
            return f"{batch}, but {step_time}."
        case _ if after.prefix_cache_hits:
            return (
                f"{after.prefix_cache_hits:,} of {after.prefix_cache_queries:,} prompt tokens were found in "
                f"the cache: too little beside {after.num_output_tokens:,} output tokens, which no cache has."
            )
        case _:
            return (
                f"0 of {after.prefix_cache_queries:,} prompt tokens were found in the cache: no two prompts "
                "begin alike for a whole block."
            )


def _price(before: StageResult, after: StageResult) -> str:
    price = f"{after.num_preemptions:,} preemptions made some tokens be computed twice"
    if before.tpot is None or after.tpot is None:
        return price
    slowest = f"{1000 * before.tpot.p99:.1f} → {1000 * after.tpot.p99:.1f} ms"
    return f"{price}; the 99th percentile of the time per output token went {slowest}"


def _milliseconds(result: StageResult) -> float:
    """Of a step."""
    return 1000 * result.seconds / result.num_steps
