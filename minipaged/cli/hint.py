"""`minipaged hint N.M`: shows the next of an exercise's three hints."""

from __future__ import annotations

import argparse

from minipaged.cli.streams import remark, stdout_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged hint`."""
    parser.add_argument("exercise", metavar="N.M", help="the exercise, as in 4.2")
    parser.add_argument(
        "--level", type=int, choices=(1, 2, 3), help="show this hint, not the next one; 3 is nearly the code"
    )


def run(args: argparse.Namespace) -> int:
    """Show a hint, and note that it was shown."""
    from rich.markdown import Markdown

    from minipaged.course import registry
    from minipaged.course.hints import NUM_LEVELS, read_hints
    from minipaged.course.hints_shown import note_shown, num_shown
    from minipaged.errors import CourseError

    exercise = registry.exercise(args.exercise)
    hints = read_hints(registry.chapter(exercise.chapter)).get(exercise.number)
    if hints is None:
        raise CourseError(f"there are no hints for {exercise.number}")
    level = args.level or min(num_shown(exercise.number) + 1, len(hints))
    console = stdout_console()
    console.print(
        f"{exercise.number} {', '.join(exercise.names)}, hint {level} of {len(hints)}", style="bold"
    )
    console.print(Markdown(hints[level - 1]))
    following = f"minipaged hint {exercise.number}"
    try:
        note_shown(exercise.number, level)
    except OSError as error:
        remark(f"It is not remembered that you saw this hint ({error})")
        following += f" --level {level + 1}"
    if level < NUM_LEVELS:
        remark(f"The next one: {following}")
    else:
        remark(f"That was the last one. The solution: minipaged solution {exercise.number}")
    return 0
