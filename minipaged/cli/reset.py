"""`minipaged reset N`: restores a chapter's exercise file. The reader's version gets another name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minipaged.cli.arguments import positive_int
from minipaged.cli.questions import confirmed
from minipaged.cli.streams import stdout_console

if TYPE_CHECKING:
    from pathlib import Path

EXIT_NOT_DONE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged reset`."""
    parser.add_argument("chapter", metavar="N", type=_chapter, help="the chapter, as in 4")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Reset one file. Returns 1 if the answer was no, otherwise 0."""
    from minipaged.course import folders, registry
    from minipaged.course.generate import is_untouched, stub_of

    chapter = registry.chapter(args.chapter)
    path = folders.exercise_file(chapter)
    stub = stub_of(chapter)
    console = stdout_console()
    shown = folders.shown(path)
    if path.is_file() and is_untouched(chapter):
        console.print(f"{shown} is untouched: there is nothing to reset.", soft_wrap=True)
        return 0
    if path.is_file():
        kept = _free_name(path)
        question = f"Reset {shown}? Your file is kept as {kept.name}."
        if not confirmed(question, yes=args.yes):
            console.print("Nothing was changed.")
            return EXIT_NOT_DONE
        path.rename(kept)
        console.print(f"Kept your file as {folders.shown(kept)}.", soft_wrap=True)
    path.write_text(stub, encoding="utf-8")
    console.print(f"{shown} is as it was in the beginning.", soft_wrap=True)
    return 0


def _chapter(text: str) -> int:
    """A chapter's number. For the number of an exercise, the error explains why it is wrong."""
    if "." in text:
        chapter = text.partition(".")[0]
        raise argparse.ArgumentTypeError(
            f"{text!r} is an exercise, but reset restores a whole chapter: minipaged reset {chapter}. It "
            "keeps your file under another name"
        )
    return positive_int(text)


def _free_name(path: Path) -> Path:
    """A name such as `ch04_x.kept1.py`, with the first number that is not used."""
    number = 1
    while True:
        kept = path.with_name(f"{path.stem}.kept{number}.py")
        if not kept.exists():
            return kept
        number += 1
