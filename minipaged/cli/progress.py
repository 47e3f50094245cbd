"""`minipaged progress`: the whole course, drawn."""

from __future__ import annotations

import argparse

from minipaged.cli.streams import stdout_console
from minipaged.cli.waiting import readers_progress

CHECKING = "Checking what has changed. The first time, half a minute or so: the engine's loops are compiled …"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`minipaged progress` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Check what has changed, and draw everything."""
    from minipaged.course.progress import next_exercise
    from minipaged.course.progress_view import ProgressView

    found = readers_progress(CHECKING)
    console = stdout_console()
    console.print(ProgressView(found))
    exercise = next_exercise(found)
    if exercise is not None:
        console.print(f"Next: {exercise.number}, {exercise.title}. See `minipaged next`.", soft_wrap=True)
    return 0
