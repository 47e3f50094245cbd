"""The match: turns, counts, and agreement. The failure of one contestant does not affect the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from minipaged.bench.throughput.contestants import OURS, Contestant
from minipaged.bench.throughput.match import Match, Rules, warm_up
from minipaged.bench.throughput.results import WorkloadResult, compare
from minipaged.sim.workload import Workload, WorkloadRequest
from tests.bench.throughput.fake_peers import JOB, fake_peer

WORKLOAD = Workload("two requests", (WorkloadRequest((1, 2, 3), 4), WorkloadRequest((9,), 2)))
RULES = Rules(repeats=2, load_limit=120, run_limit=120)


def play(
    contestants: list[Contestant], *, rules: Rules = RULES, workloads: int = 1
) -> tuple[Match, list[WorkloadResult], list[str]]:
    said: list[str] = []
    jobs = {each.name: JOB for each in contestants}
    with Match(contestants, jobs, rules, said.append) as match:
        results = [match.run("W1", WORKLOAD, None) for _ in range(workloads)]
    return match, results, said


def test_runs_alternate_and_agree(tmp_path: Path) -> None:
    match, (result,), said = play([fake_peer(tmp_path, OURS), fake_peer(tmp_path, "other")])
    turns = [line.split(", ")[2].partition(":")[0] for line in said if line.startswith("W1")]
    assert turns == [OURS, "other", OURS, "other"]
    ours, other = result.entries
    assert ours.agreement is None
    assert other.agreement is not None
    assert other.agreement.num_differing == 0
    assert other.tokens_per_second == 12.0  # 6 tokens in the half second that it reports
    assert result.ratio(other) == 1.0
    assert [record.failure for record in match.records] == [None, None]


def test_other_tokens_are_reported_not_refused(tmp_path: Path) -> None:
    other = fake_peer(tmp_path, "other", on_run="outputs[0][2] = 77")
    _, (result,), _ = play([fake_peer(tmp_path, OURS), other])
    agreement = result.entries[1].agreement
    assert agreement is not None
    assert (agreement.num_differing, agreement.first) == (1, (0, 2))
    assert len(result.entries[1].runs) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("outputs[1].pop()", "1 tokens for request 1, not the 2 asked for"),
        ("outputs[0].append(5)", "5 tokens for request 0, not the 4 asked for"),
        ("outputs.pop()", "did not answer all of the 2 requests"),
    ],
)
def test_wrong_counts_are_a_failure(tmp_path: Path, change: str, complaint: str) -> None:
    _, (result,), _ = play([fake_peer(tmp_path, "bad", on_run=change), fake_peer(tmp_path, OURS)])
    bad, ours = result.entries
    assert bad.runs == ()
    assert bad.failure is not None
    assert complaint in bad.failure
    assert len(ours.runs) == 2


def test_the_others_go_on(tmp_path: Path) -> None:
    contestants = [
        fake_peer(tmp_path, "absent", on_load="import no_such_engine"),
        fake_peer(tmp_path, "unloadable", on_load="sys.exit('no luck')"),
        fake_peer(tmp_path, "crashing", on_run="sys.exit('no more luck')"),
        fake_peer(tmp_path, OURS),
    ]
    match, (first, second), _ = play(contestants, workloads=2)
    assert [entry.failure for entry in first.entries] == [
        "absent",
        "not loaded",
        "it ended with exit status 1: no more luck",
        None,
    ]
    assert [entry.failure for entry in second.entries] == ["absent", "not loaded", "ended before", None]
    assert len(second.entries[3].runs) == 2
    absent, unloadable, crashing, ours = match.records
    assert absent.absent is not None
    assert "no_such_engine" in absent.absent
    assert unloadable.failure == "while loading, it ended with exit status 1: no luck"
    assert crashing.log is not None
    assert crashing.log.endswith("no more luck")
    assert ours.settings == {"kind": "fake"}


def test_one_that_hangs_is_given_up(tmp_path: Path) -> None:
    hanging = fake_peer(tmp_path, "hanging", on_run="time.sleep(1000)")
    _, (result,), _ = play([hanging], rules=replace(RULES, run_limit=0.2))
    assert result.entries[0].failure == "it gave no answer within 0.2 seconds"
    assert result.ours is None


def test_warm_up_is_a_short_run_of_the_same_prompts() -> None:
    requests = tuple(WorkloadRequest((number,), 100) for number in range(10))
    assert warm_up(Workload("ten", requests)) == {"prompts": [[0], [1], [2], [3]], "max_tokens": [8] * 4}


def test_the_worst_run_counts() -> None:
    ours = ((1, 2), (3, 4))
    agreement = compare(ours, [ours, ((1, 9), (9, 4)), ((1, 2), (3, 9))])
    assert (agreement.num_requests, agreement.num_differing, agreement.first) == (2, 2, (0, 1))
