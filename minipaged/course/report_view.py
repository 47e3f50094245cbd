"""Draw results with rich: in a terminal, in pytest's summary, and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.jupyter import JupyterMixin
from rich.table import Table
from rich.text import Text

from minipaged.course.chapter import Chapter
from minipaged.course.results import ExerciseResult, PartRow, State, texts_of

_MARKS: dict[State, tuple[str, str]] = {
    "pass": ("✓", "green"),
    "wrong": ("✗", "red"),
    "todo": ("·", "yellow"),
}
_WHOSE = {"mine": "yours", "engine": "the engine's", "solutions": "the solution's"}


@dataclass(frozen=True)
class CheckReport(JupyterMixin):
    """The result of a check: a line for each exercise, then what is wrong or still to do.

    Attributes:
        chapter: the chapter that was checked.
        impl: whose code was checked.
        results: the results of the exercises, in order.
        remark: a further line to show, for example if the results could not be saved.
    """

    chapter: Chapter
    impl: str
    results: tuple[ExerciseResult, ...]
    remark: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.results) and all(each.state == "pass" for each in self.results)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield states_table(self.chapter, self.results)
        yield from self._texts()
        rows = [row for each in self.results for test in each.tests for row in test.parts]
        if rows:
            yield Text()
            yield parts_table(rows)

    def _texts(self) -> Iterator[RenderableType]:
        for each, text in texts_of(self.results):
            heading, _, rest = text.partition("\n")
            yield Text(f"\n{heading}" if rest else heading, style=_MARKS[each.state][1], no_wrap=False)
            if rest:
                yield Text(rest)


def states_table(chapter: Chapter, results: Sequence[ExerciseResult]) -> Table:
    """A table with one line for each exercise."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    table.add_column()
    for each in results:
        mark, style = _MARKS[each.state]
        number = "" if each.exercise is None else each.exercise.number
        title = "your code in the engine" if each.exercise is None else each.exercise.title
        if each.exercise is not None and each.exercise.stretch:
            title += " (stretch)"
        state: str = each.state
        if each.state == "pass" and not each.is_done:
            mark, style = _MARKS["todo"]
            state = f"pass, {_what_is_missing(each)}"
        table.add_row(Text(mark, style), number, Text(title), Text(state, style))
    return table


def _what_is_missing(passing: ExerciseResult) -> str:
    """Why a test in the engine is not done although it passes."""
    if passing.beside:
        are = "is" if len(passing.beside) == 1 else "are"
        return f"but {', '.join(passing.beside)} {are} wrong"
    own, all_of_them = passing.own_parts
    return f"{own} of {all_of_them} parts yours"


def parts_table(rows: Sequence[PartRow]) -> Table:
    """A table that shows whose code ran for each part of the engine."""
    table = Table(title="The engine ran with", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("part")
    table.add_column("exercise")
    table.add_column("whose")
    table.add_column("calls", justify="right")
    for row in rows:
        calls = "" if row.num_calls is None else f"{row.num_calls:,}"
        whose = _WHOSE.get(row.whose, row.whose)
        if row.whose == "incomplete":
            whose = f"{_WHOSE['engine']}: {row.exercise} is not complete"
        elif row.remark:
            whose = f"{whose}: {row.remark}"
        table.add_row(row.part, row.exercise, whose, calls)
    return table


def as_text(renderable: RenderableType, width: int) -> str:
    """A renderable as plain text of the given width."""
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False, emoji=False).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
