"""Run and time the parts of the GPU check. If a part fails, the other parts still run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Row = dict[str, str | int | float | bool]
"""One row of a part's figures, as names and values."""


@dataclass(frozen=True)
class PartResult:
    """The result of a part.

    Attributes:
        headline: the result in a few words, for the table that is printed at the end.
        rows: all figures.
        failed: whether the part found something wrong.
    """

    headline: str
    rows: Sequence[Row]
    failed: bool = False


@dataclass(frozen=True)
class PartRecord:
    """A part that was run, or skipped.

    Attributes:
        name: the part's name.
        seconds: the time that the part took.
        headline: the headline of the result, or the reason why there is no result.
        failed: whether the part raised an error or found something wrong.
        rows: the part's figures.
        error: the traceback, if the part raised an error.
    """

    name: str
    seconds: float
    headline: str
    failed: bool
    rows: Sequence[Row]
    error: str | None = None


Parts = Mapping[str, Callable[[], PartResult]]
"""The parts to run, by name."""


def run_parts(
    parts: Parts,
    *,
    deadline: float,
    after_each: Callable[[Sequence[PartRecord]], None],
) -> list[PartRecord]:
    """Run the parts one after the other. A part that raises is recorded as failed, and the next part runs.

    Args:
        parts: the parts to run, by name.
        deadline: a time on the clock of `time.monotonic`. Parts that have not begun by then are skipped.
        after_each: called after each part with all records so far. It saves them in case the process dies.
    """
    records: list[PartRecord] = []
    for name, part in parts.items():
        start = time.monotonic()
        if start >= deadline:
            records.append(PartRecord(name, 0.0, "not run: out of time", True, []))
        else:
            records.append(_run(name, part, start))
        after_each(records)
    return records


def _run(name: str, part: Callable[[], PartResult], start: float) -> PartRecord:
    try:
        result = part()
    except Exception as error:  # any error: the other parts must still run
        seconds = time.monotonic() - start
        reason = ": ".join(["failed", type(error).__name__, *str(error).splitlines()[:1]])
        return PartRecord(name, seconds, reason, True, [], traceback.format_exc())
    return PartRecord(name, time.monotonic() - start, result.headline, result.failed, result.rows)
