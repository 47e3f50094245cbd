"""`minipaged progress`: the whole course, drawn."""

from __future__ import annotations

import argparse

from minipaged.cli.streams import remark, stdout_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`minipaged progress` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Check what has changed, and draw everything."""
    from minipaged.course.progress import next_exercise, progress
    from minipaged.course.progress_view import ProgressView

    found = progress(before=lambda chapters: remark("Checking what has changed …"))
    console = stdout_console()
    console.print(ProgressView(found))
    exercise = next_exercise(found)
    if exercise is not None:
        console.print(f"Next: {exercise.number}, {exercise.title}. See `minipaged next`.", soft_wrap=True)
    return 0
