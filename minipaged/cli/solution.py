"""`minipaged solution N.M`: shows the worked solution of one exercise."""

from __future__ import annotations

import argparse

from minipaged.cli.questions import confirmed
from minipaged.cli.source_code import print_source
from minipaged.cli.streams import remark, stdout_console
from minipaged.cli.waiting import readers_progress

EXIT_NOT_SHOWN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged solution`."""
    parser.add_argument("exercise", metavar="N.M", help="the exercise, as in 4.2")
    parser.add_argument("--yes", action="store_true", help="show it even if the exercise is not solved yet")


def run(args: argparse.Namespace) -> int:
    """Show the solution. Returns 1 if the answer was no, otherwise 0."""
    from minipaged.course import folders, registry, stubs
    from minipaged.course.implementation import implementation

    exercise = registry.exercise(args.exercise)
    chapter = registry.chapter(exercise.chapter)
    console = stdout_console()
    if not args.yes:
        ((_, results),) = readers_progress("Checking whether you have solved it …", [chapter])
        solved = any(each.exercise == exercise and each.state == "pass" for each in results)
        question = f"{exercise.number} is not solved yet. Show the solution anyway?"
        if not solved and not confirmed(question, yes=False):
            console.print(f"Not shown. A hint: minipaged hint {exercise.number}")
            return EXIT_NOT_SHOWN
    path = folders.solution_file(chapter)
    source = stubs.without_markers(folders.solution_text(chapter))
    for name in exercise.names:
        print_source(console, stubs.text_of(source, name))
        console.print()
    engine = folders.shown(implementation(chapter, "engine").path)
    remark(f"From {folders.shown(path)}. The engine has it too: see {engine}")
    return 0
