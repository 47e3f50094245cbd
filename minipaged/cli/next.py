"""`minipaged next`: shows the exercise to do next."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minipaged.cli.progress import CHECKING
from minipaged.cli.source_code import print_source
from minipaged.cli.streams import stdout_console
from minipaged.cli.waiting import readers_progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minipaged.course.results import ExerciseResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged next`."""
    parser.add_argument(
        "chapter", metavar="N", nargs="?", type=int, help="look in this chapter alone, to begin there"
    )


def run(args: argparse.Namespace) -> int:
    """Show the next exercise that does not pass yet."""
    from minipaged.course import folders, registry, stubs
    from minipaged.course.implementation import implementation
    from minipaged.course.progress import next_exercise

    console = stdout_console()
    chapters = None if args.chapter is None else [registry.chapter(args.chapter)]
    found = readers_progress(CHECKING, chapters)
    exercise = next_exercise(found)
    if exercise is None:
        where = "Everything that there is" if chapters is None else f"All of chapter {args.chapter}"
        console.print(f"{where} passes. `minipaged progress` shows it.", style="green")
        return 0
    chapter = registry.chapter(exercise.chapter)
    mine = implementation(chapter, "mine")
    console.print(f"{exercise.number}  {exercise.title}", style="bold")
    unusable = _about_the_file(each for _, results in found for each in results if each.exercise == exercise)
    if unusable:
        console.print(unusable, style="red", soft_wrap=True)
        return 0
    names = mine.unwritten(exercise) or exercise.names
    console.print(f"write    {', '.join(names)} in {mine.where(exercise, names[0])}", soft_wrap=True)
    source = folders.shown(folders.notebook_file(chapter))
    console.print(f"read     “{exercise.section}” in {source}", soft_wrap=True)
    console.print(f"check    minipaged check {exercise.number}")
    console.print(f"stuck?   minipaged hint {exercise.number}")
    console.print()
    # A method is shown with its whole class, since the class docstring explains it.
    whole = dict.fromkeys(name.partition(".")[0] for name in names)
    text = mine.source()
    there = [name for name in whole if stubs.has(text, name)]
    print_source(console, "\n\n\n".join(stubs.text_of(text, each) for each in there))
    for name in whole:
        if name not in there:
            console.print(f"There is no {name} in this file any more: `minipaged reset` makes a new one.")
    return 0


def _about_the_file(results: Iterable[ExerciseResult]) -> str:
    """The message of `minipaged check` for a file that cannot be used; empty for other files."""
    return "\n".join(text for each in results if each.is_of_the_file for text in each.texts)
