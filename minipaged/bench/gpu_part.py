"""A part of the GPU check: it is run, timed, and may fail without taking the others with it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Row = dict[str, str | int | float | bool]
"""One line of a part's results: names and values."""


@dataclass(frozen=True)
class PartResult:
    """What a part found.

    Attributes:
        headline: the result in a few words, for the table that is printed last.
        rows: all figures.
        failed: whether what was found is wrong.
    """

    headline: str
    rows: Sequence[Row]
    failed: bool = False


@dataclass(frozen=True)
class PartRecord:
    """A part that was run, or passed over.

    Attributes:
        name: the part's.
        seconds: that it took.
        headline: of its result, or why there is none.
        failed: it raised, or found something wrong.
        rows: its figures.
        error: the traceback, if it raised.
    """

    name: str
    seconds: float
    headline: str
    failed: bool
    rows: Sequence[Row]
    error: str | None = None


Parts = Mapping[str, Callable[[], PartResult]]
"""What to run, by name."""


def run_parts(
    parts: Parts,
    *,
    deadline: float,
    after_each: Callable[[Sequence[PartRecord]], None],
) -> list[PartRecord]:
    """Run the parts one after the other. One that raises is recorded as failed, and the next one runs.

    Args:
        parts: what to run, by name.
        deadline: on the clock of `time.monotonic`; parts that have not begun by then are passed over.
        after_each: gets all records so far, so that they are safe should the process die.
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
    except Exception as error:  # whatever goes wrong in there, the other parts are wanted
        seconds = time.monotonic() - start
        reason = ": ".join(["failed", type(error).__name__, *str(error).splitlines()[:1]])
        return PartRecord(name, seconds, reason, True, [], traceback.format_exc())
    return PartRecord(name, time.monotonic() - start, result.headline, result.failed, result.rows)
