"""The ladder's tables and pictures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from minipaged.bench.ladder import Difference, LadderResult, WorkloadResult
from minipaged.view.ladder_plot import plot_ladder
from minipaged.view.ladder_report import ladder_report
from tests.bench.results import stage_result, workload_result

LADDER = workload_result(
    stage_result(1, seconds=40.0),
    stage_result(2),
    stage_result(8, seconds=5.0, prefix_cache_hits=200, num_preemptions=12_345, tpot=None),
)


def shown(result: WorkloadResult, lines: list[str] | None = None) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(ladder_report(result, lines or []))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_numbers_are_where_they_belong() -> None:
    text = shown(LADDER, ["a remark [bold]"])
    rows = [line.split() for line in text.splitlines()]
    assert ["8", "200", "1.00", "2.00", "–", "–", "2.0", "500", "12,345", "25%"] in rows
    assert ["1", "25", "1.00", "2.00", "10.00", "20.00", "2.0", "500", "0", "–"] in rows
    assert ["2", "20.0", "10.0", "50.0", "10.0", "10.0"] in rows
    assert ["1", "–", "–", "–", "–", "–"] in rows
    assert "All 3 stages gave the same 1,000 tokens." in text
    assert "- a remark [bold]" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_bars_are_in_proportion() -> None:
    lengths = {line.split()[0]: line.count("█") for line in shown(LADDER).splitlines() if line.count("█") > 1}
    assert lengths["8"] == 2 * lengths["2"]
    assert lengths["2"] == pytest.approx(4 * lengths["1"], abs=3)


def test_a_difference_is_not_hidden() -> None:
    text = shown(workload_result(stage_result(2), stage_result(3), difference=Difference(3, 2, 5, 7)))
    assert "DIFFERENT TOKENS: stages 2 and 3 differ from output token 7 of request 5 on" in text
    assert "the same 1,000 tokens" not in text


def test_one_stage_compares_nothing() -> None:
    text = shown(workload_result(stage_result(1)))
    assert "nothing to compare" in text
    assert "KV memory" not in text


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("stages", [[1], [2], [1, 2, 8]])
def test_a_picture_is_drawn(tmp_path: Path, stages: list[int]) -> None:
    path = tmp_path / "ladder.png"
    result = workload_result(*(stage_result(stage) for stage in stages))
    plot_ladder(LadderResult("tiny", "float32", "cpu", 1, 0, 16, 256, (result, LADDER)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
