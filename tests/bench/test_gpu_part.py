"""If a part of the GPU check fails, the other parts still run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from minipaged.bench.gpu import format_table
from minipaged.bench.gpu_part import PartRecord, PartResult, run_parts

NEVER = float("inf")


def fine() -> PartResult:
    return PartResult("fine", [{"figure": 1.5}])


def wrong() -> PartResult:
    return PartResult("2 of 3 right", [], failed=True)


def broken() -> PartResult:
    raise RuntimeError("out of memory\nand more that nobody wants in a table")


def test_one_that_raises_does_not_stop_the_next() -> None:
    seen: list[list[str]] = []

    def look(records: Sequence[PartRecord]) -> None:
        seen.append([record.name for record in records])

    parts = {"first": broken, "second": wrong, "third": fine}
    records = run_parts(parts, deadline=NEVER, after_each=look)
    assert [record.failed for record in records] == [True, True, False]
    assert [record.headline for record in records] == [
        "failed: RuntimeError: out of memory",
        "2 of 3 right",
        "fine",
    ]
    assert records[0].error is not None
    assert "in broken" in records[0].error
    assert records[2].rows == [{"figure": 1.5}]
    assert seen == [["first"], ["first", "second"], ["first", "second", "third"]], "safe after each part"


def test_what_has_not_begun_in_time_is_passed_over() -> None:
    records = run_parts({"late": broken}, deadline=time.monotonic(), after_each=lambda records: None)
    assert [record.headline for record in records] == ["not run: out of time"]
    assert records[0].failed


def test_an_error_without_a_message() -> None:
    def silent() -> PartResult:
        raise ValueError

    (record,) = run_parts({"silent": silent}, deadline=NEVER, after_each=lambda records: None)
    assert record.headline == "failed: ValueError"


def test_the_table() -> None:
    records = run_parts({"one": fine, "another": wrong}, deadline=NEVER, after_each=lambda records: None)
    assert [line.split() for line in format_table(records).splitlines()] == [
        ["part", "seconds", "result"],
        ["one", "0.0", "fine"],
        ["another", "0.0", "✗", "2", "of", "3", "right"],
    ]
