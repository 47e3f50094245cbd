"""Waiting for tests at a terminal: one line, which is rewritten, shows the running test."""

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
    """Within the `with` block, show the running test in a terminal. Elsewhere, print a line now and then."""
    console = stderr_console()
    if not console.is_terminal:
        yield every_ten_seconds(sys.stderr)
        return
    from rich.text import Text

    status = console.status("")
    with ExitStack() as stack:
        shown: list[TestInTime] = []

        def look(running: TestInTime) -> None:
            if not shown:  # only now, since other lines may have been written before
                stack.enter_context(status)
            shown[:] = [running]
            status.update(Text(str(running)))

        yield look


def readers_progress(
    before: str, chapters: Sequence[Chapter] | None = None
) -> list[tuple[Chapter, list[ExerciseResult]]]:
    """The reader's results, as from `progress`. The running test is shown meanwhile.

    Args:
        before: a line to show if tests have to be run.
        chapters: the chapters; all if not given.
    """
    from minipaged.course.progress import progress

    unsaved: list[str] = []
    with shown_meanwhile() as look:
        found = progress(chapters, before=lambda _: remark(before), look=look, unsaved=unsaved.append)
    for line in unsaved:
        remark(line)
    return found
