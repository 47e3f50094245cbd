"""ProgressView: all chapters and exercises with their state, drawn with rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from minipaged.course.chapter import Chapter
from minipaged.course.report_view import states_table
from minipaged.course.results import ExerciseResult

_BAR_WIDTH = 20


@dataclass(frozen=True)
class ProgressView:
    """A picture of the course.

    Attributes:
        found: each chapter with its results.
    """

    found: Sequence[tuple[Chapter, Sequence[ExerciseResult]]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        done = total = 0
        for chapter, results in self.found:
            num_passed = sum(each.is_done for each in results)
            done, total = done + num_passed, total + len(results)
            heading = Table.grid(padding=(0, 2))
            heading.add_row(
                Text(f"{chapter.number} {chapter.title}", "bold"),
                _bar(num_passed, len(results), ascii_only=options.ascii_only),
                Text(f"{chapter.minutes} min", "dim"),
            )
            yield heading
            yield states_table(chapter, results)
            yield Text()
        yield Text(f"{done} of {total} pass", "green" if done == total else "bold")


def _bar(done: int, total: int, *, ascii_only: bool) -> Text:
    filled = round(_BAR_WIDTH * done / total) if total else 0
    full, empty = ("#", "-") if ascii_only else ("━", "┄")
    return Text.assemble((full * filled, "green"), (empty * (_BAR_WIDTH - filled), "dim"), f" {done}/{total}")
