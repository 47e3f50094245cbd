"""`minipaged next`: the exercise to do next."""

from __future__ import annotations

import argparse

from minipaged.cli.progress import CHECKING
from minipaged.cli.source_code import print_source
from minipaged.cli.streams import remark, stdout_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged next`."""
    parser.add_argument(
        "chapter", metavar="N", nargs="?", type=int, help="look in this chapter alone, to begin there"
    )


def run(args: argparse.Namespace) -> int:
    """Show the next exercise that does not pass yet."""
    from minipaged.course import folders, registry, stubs
    from minipaged.course.implementation import implementation
    from minipaged.course.progress import next_exercise, progress

    console = stdout_console()
    chapters = None if args.chapter is None else [registry.chapter(args.chapter)]
    found = progress(chapters, before=lambda changed: remark(CHECKING))
    exercise = next_exercise(found)
    if exercise is None:
        where = "Everything that there is" if chapters is None else f"All of chapter {args.chapter}"
        console.print(f"{where} passes. `minipaged progress` shows it.", style="green")
        return 0
    chapter = registry.chapter(exercise.chapter)
    mine = implementation(chapter, "mine")
    console.print(f"{exercise.number}  {exercise.title}", style="bold")
    names = mine.unwritten(exercise) or exercise.names
    console.print(f"write    {', '.join(names)} in {mine.where(exercise, names[0])}", soft_wrap=True)
    source = folders.shown(folders.notebook_file(chapter))
    console.print(f"read     “{exercise.section}” in {source}", soft_wrap=True)
    console.print(f"check    minipaged check {exercise.number}")
    console.print(f"stuck?   minipaged hint {exercise.number}")
    text = folders.exercise_file(chapter).read_text(encoding="utf-8")
    console.print()
    # A method is shown with its whole class, since the class docstring explains it.
    whole = dict.fromkeys(name.partition(".")[0] for name in names)
    print_source(console, "\n\n\n".join(stubs.text_of(text, each) for each in whole))
    return 0
