"""Reports keep their numbers whole, in a terminal of any width."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType

from minipaged.bench.scheduler_steps import Pool, StepCost
from minipaged.bench.step_shares import StepShare
from minipaged.view.ladder_report import ladder_report
from minipaged.view.scheduler_report import scheduler_report
from minipaged.view.throughput_report import throughput_report
from minipaged.view.whole_table import WholeTable
from tests.view.test_ladder_report import LADDER
from tests.view.test_throughput_report import RESULT


def small_table() -> WholeTable:
    table = WholeTable("Counts of a thing", "", "first", "second")
    table.add_row("a", "1,234,567", "12.5%")
    table.add_row("bc", "–", "0")
    return table


def scheduler() -> RenderableType:
    costs = [
        StepCost(context, num_requests=32, schedule=1.5e-3, take_in=2e-3, prepare=3e-3)
        for context in (128, 131_072)
    ]
    share = StepShare("tiny", 32, 0.123456, 1e-3, 2e-3, 3e-3, 4e-4)
    return scheduler_report(Pool(32, 12_345, 16, 8), costs, [share])


REPORTS: dict[str, Callable[[], RenderableType]] = {
    "table": small_table,
    "ladder": lambda: ladder_report(LADDER, []),
    "throughput": lambda: throughput_report(RESULT),
    "scheduler": scheduler,
}


def shown(report: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(report)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d[\d.,]*\d|\d", text))


@pytest.mark.parametrize("width", [30, 40, 50, 60, 72, 80, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_numbers_are_whole_at_every_width(name: str, width: int) -> None:
    report = REPORTS[name]()
    text = shown(report, width)
    narrow, wide = numbers(text), numbers(shown(report, 1000))
    assert narrow >= wide
    assert narrow.keys() == wide.keys()  # sentences say a heading more than once
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_rows_become_sentences() -> None:
    as_table, in_words = (" ".join(shown(small_table(), width).split()) for width in (30, 20))
    assert as_table == "Counts of a thing first second a 1,234,567 12.5% bc – 0"
    assert in_words == "Counts of a thing a, first 1,234,567, second 12.5% bc, first –, second 0"
