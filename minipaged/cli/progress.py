"""`minipaged progress`: the whole course, drawn."""

from __future__ import annotations

import argparse

from minipaged.cli.streams import remark, stdout_console

CHECKING = "Checking what has changed. The first time, half a minute or so: the engine's loops are compiled …"
"""Nothing is printed for as long as that takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`minipaged progress` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Check what has changed, and draw everything."""
    from minipaged.course.progress import next_exercise, progress
    from minipaged.course.progress_view import ProgressView

    found = progress(before=lambda chapters: remark(CHECKING))
    console = stdout_console()
    console.print(ProgressView(found))
    exercise = next_exercise(found)
    if exercise is not None:
        console.print(f"Next: {exercise.number}, {exercise.title}. See `minipaged next`.", soft_wrap=True)
    return 0
