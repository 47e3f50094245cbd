"""`minipaged progress`: draws the state of the whole course."""

from __future__ import annotations

import argparse

from minipaged.cli.streams import stdout_console
from minipaged.cli.waiting import readers_progress

CHECKING = "Checking what has changed. The first check compiles the engine's loops: about half a minute …"
"""Shown before the check, since the check prints nothing while it runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`minipaged progress` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Check the exercises that have changed, then print an overview of the whole course."""
    from minipaged.course.progress import next_exercise
    from minipaged.course.progress_view import ProgressView

    found = readers_progress(CHECKING)
    console = stdout_console()
    console.print(ProgressView(found))
    exercise = next_exercise(found)
    if exercise is not None:
        console.print(f"Next: {exercise.number}, {exercise.title}. See `minipaged next`.", soft_wrap=True)
    return 0
