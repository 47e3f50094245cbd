"""A stage that gained nothing gets a remark, and the reason in it follows from the numbers."""

from __future__ import annotations

import pytest

from minipaged.bench.ladder_remarks import remarks
from minipaged.bench.stage_run import StageResult
from tests.bench.results import stage_result, workload_result


def lines_for(*stages: StageResult) -> list[str]:
    return remarks(workload_result(*stages))


def test_stages_that_gain_are_passed_over() -> None:
    ladder = [stage_result(n, seconds=100 / n**2, num_steps=1000 // n) for n in range(1, 9)]
    assert lines_for(*ladder) == []


@pytest.mark.parametrize(
    ("stage", "changes", "words"),
    [
        (2, {}, "sequences are this short"),
        (3, {"mean_batch": 5.0, "num_steps": 200}, "Paging buys memory, not speed: 2.0 → 5.0 requests"),
        (3, {"mean_batch": 2.05}, "Memory was not scarce"),
        (5, {}, "A guess: with sequences this short"),
        (6, {"mean_batch": 3.0, "num_steps": 400}, "But each step took 20.00 → 25.00 ms"),
        (6, {"mean_batch": 2.01}, "no place in a batch stayed empty for long"),
        (7, {"mean_batch": 2.05}, "outputs here reach their max_tokens"),
        (7, {"mean_batch": 3.0, "num_preemptions": 7}, "7 preemptions some tokens were computed twice"),
        (7, {"mean_batch": 3.0}, "2.0 → 3.0 requests in the batch, but each step took"),
        (8, {"prefix_cache_hits": 80}, "80 of 800 prompt tokens were found in the cache: few compared"),
        (8, {"num_preemptions": 1}, "0 of 800 prompt tokens were found in the cache: no two prompts"),
    ],
)
def test_a_stage_without_gain_says_why(stage: int, changes: dict[str, object], words: str) -> None:
    [line] = lines_for(stage_result(stage - 1), stage_result(stage, **changes))
    assert line.startswith(f"Stage {stage} (")
    assert f"+0.0% tokens/s over stage {stage - 1}" in line
    assert words in line


@pytest.mark.parametrize(
    ("seconds", "is_remarked"), [(10.0 / 1.02, True), (10.0 / 1.04, False), (12.0, True)]
)
def test_three_per_cent_is_a_gain(seconds: float, is_remarked: bool) -> None:
    lines = lines_for(stage_result(4), stage_result(5, seconds=seconds))
    assert (len(lines) == 1) == is_remarked


def test_stages_that_did_the_same_work_show_the_noise() -> None:
    three, four = stage_result(3), stage_result(4, seconds=8.0)
    same, noise = lines_for(three, four)
    assert same.startswith("Stage 4 (copy-on-write) did the same work as stage 3. Every request has one")
    assert "25.0% apart" in noise
    within, beyond = stage_result(5, seconds=7.0), stage_result(6, seconds=4.0, num_steps=300)
    lines = lines_for(three, four, within, beyond)
    assert len(lines) == 3
    assert "Stage 5 (fast attention): +14.3% tokens/s over stage 4, which is within the noise" in lines[1]


@pytest.mark.parametrize(
    ("stage", "words"),
    [(6, "No place in the batch"), (7, "no request was preempted"), (8, "0 of 800 prompt tokens")],
)
def test_what_had_nothing_to_do(stage: int, words: str) -> None:
    same, noise = lines_for(stage_result(stage - 1), stage_result(stage, seconds=9.0))
    assert f"did the same work as stage {stage - 1}." in same
    assert words in same
    assert "11.1% apart" in noise


def test_other_kernels_are_other_work() -> None:
    for stage in (3, 5):
        [line] = lines_for(stage_result(stage - 1), stage_result(stage))
        assert "same work" not in line


def test_preemption_that_pays_has_a_price() -> None:
    after = stage_result(7, seconds=5.0, mean_batch=4.0, num_preemptions=9, num_steps=250)
    assert lines_for(stage_result(6), after) == [
        "Stage 7 (preemption) has a price: because of 9 preemptions some tokens were computed twice; the "
        "99th percentile of the time per output token went 20.0 → 20.0 ms."
    ]
    [line] = lines_for(stage_result(6, tpot=None), after)
    assert line.endswith("some tokens were computed twice.")


def test_a_stage_whose_predecessor_was_not_run_is_not_judged() -> None:
    assert lines_for(stage_result(2), stage_result(5), stage_result(8)) == []
