"""Waiting for tests at a terminal: which one is running, on a line that is written anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from minipaged.cli.streams import remark, stderr_console
from minipaged.course.waiting import Look, TestInTime, every_ten_seconds

if TYPE_CHECKING:
    from minipaged.course.chapter import Chapter
    from minipaged.course.results import ExerciseResult


@contextmanager
def shown_meanwhile() -> Iterator[Look]:
    """Shows on stderr what is called within the block; where that is no terminal, a line now and then."""
    console = stderr_console()
    if not console.is_terminal:
        yield every_ten_seconds(sys.stderr)
        return
    from rich.text import Text

    status = console.status("")
    with ExitStack() as stack:
        shown: list[TestInTime] = []

        def look(running: TestInTime) -> None:
            if not shown:  # not before, since other lines may be written until then
                stack.enter_context(status)
            shown[:] = [running]
            status.update(Text(str(running)))

        yield look


def readers_progress(
    before: str, chapters: Sequence[Chapter] | None = None
) -> list[tuple[Chapter, list[ExerciseResult]]]:
    """The reader's results, as `progress`, shown while they are found.

    Args:
        before: a line for who waits, if tests must be run.
        chapters: which; all, if not given.
    """
    from minipaged.course.progress import progress

    unsaved: list[str] = []
    with shown_meanwhile() as look:
        found = progress(chapters, before=lambda _: remark(before), look=look, unsaved=unsaved.append)
    for line in unsaved:
        remark(line)
    return found
