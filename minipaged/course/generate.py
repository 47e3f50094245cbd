"""Write the course's generated files. For authors of chapters.

    python -m minipaged.course.generate            everything, for all chapters
    python -m minipaged.course.generate 4          chapter 4
    python -m minipaged.course.generate 4 --only stubs
    python -m minipaged.course.generate --check    write nothing; list the files that are out of date

Stubs come from `solutions/`, notebooks and interview pages from `chapters/NN/*.md`. Notebooks are
executed, which takes up to a minute each; `--only` leaves them out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter
from minipaged.course.interview import interview_page
from minipaged.course.source_text import read_source
from minipaged.course.stubs import make_stub
from minipaged.errors import MinipagedError

KINDS = ("stubs", "interview", "notebooks")


def stub_of(chapter: Chapter) -> str:
    """The exercise file's text before the reader changes it."""
    return make_stub(folders.solution_text(chapter))


def is_untouched(chapter: Chapter) -> bool:
    """Whether the exercise file still has its original text. Its line ends and encoding may differ.

    Raises:
        OSError: there is no such file.
    """
    try:
        return read_source(folders.exercise_file(chapter)) == stub_of(chapter)
    except SyntaxError:
        return False


def out_of_step(chapter: Chapter, kinds: Sequence[str] = KINDS) -> list[str]:
    """Describe the generated files that differ from what their source gives.

    An exercise file that the reader has changed is one of them.
    """
    found = []
    exercises, interview = folders.exercise_file(chapter), folders.interview_file(chapter)
    if "stubs" in kinds and not (exercises.is_file() and is_untouched(chapter)):
        found.append(f"{folders.shown(exercises)} is not what its source gives")
    page = interview_page(chapter) if "interview" in kinds else ""
    if page and not (interview.is_file() and interview.read_text(encoding="utf-8") == page):
        found.append(f"{folders.shown(interview)} is not what its source gives")
    if "notebooks" in kinds:
        from minipaged.course.notebooks import differences

        name = folders.shown(folders.notebook_file(chapter))
        found += [f"{name}: {difference}" for difference in differences(chapter)]
    return found


def write(chapter: Chapter, kinds: Sequence[str]) -> None:
    """Write a chapter's generated files.

    Raises:
        CourseError: a source is malformed.
    """
    if "stubs" in kinds:
        folders.exercise_file(chapter).write_text(stub_of(chapter), encoding="utf-8")
        print(f"wrote {folders.shown(folders.exercise_file(chapter))}")
    if "interview" in kinds:
        folders.interview_file(chapter).write_text(interview_page(chapter), encoding="utf-8")
        print(f"wrote {folders.shown(folders.interview_file(chapter))}")
    if "notebooks" in kinds:
        from minipaged.course.notebooks import write_executed

        print(f"wrote {folders.shown(write_executed(chapter))}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if `--check` finds a difference, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m minipaged.course.generate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("chapters", nargs="*", type=int, help="default: all")
    parser.add_argument("--only", choices=KINDS, action="append", help="may be repeated")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(argv)
    kinds = args.only or KINDS
    try:
        chosen = [registry.chapter(number) for number in args.chapters] or registry.chapters()
        if not args.check:
            for chapter in chosen:
                write(chapter, kinds)
            return 0
        found = [each for chapter in chosen for each in out_of_step(chapter, kinds)]
    except MinipagedError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
