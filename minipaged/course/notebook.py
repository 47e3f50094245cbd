"""What a chapter's notebook uses: the reader's code, checks, bugs, and the reader's parts for the engine."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Unpack

from rich.console import Console

from minipaged.config import EngineConfig
from minipaged.course import registry, zoo
from minipaged.course.chapter import Chapter
from minipaged.course.checks import check_numbered, default_impl
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.report_view import CheckReport
from minipaged.course.seams import ResolvedParts, resolve
from minipaged.course.waiting import every_ten_seconds
from minipaged.errors import CourseError
from minipaged.options import EngineOptions


class Code:
    """A chapter's functions: the reader's if they are written, and the solution's if not.

    With the solution's functions, a notebook can be run to its end before everything is solved. A remark
    is printed once for each exercise whose solution is used.
    """

    def __init__(self, chapter: Chapter, impl: str) -> None:
        self._chapter = chapter
        self._source = implementation(chapter, impl)
        self._written = self._source.written()
        self._module: ModuleType | None = None
        self._solution: ModuleType | None = None
        self._said: set[str] = set()

    def __getattr__(self, name: str) -> object:
        exercise = self._chapter.exercise_of(name)
        if exercise is None or exercise.number in self._written:
            if self._module is None:
                self._module = self._source.load()
            return getattr(self._module, name)
        if self._solution is None:
            try:
                self._solution = implementation(self._chapter, "solutions").load()
            except CourseError as error:
                raise CourseError(
                    f"exercise {exercise.number}, {exercise.name}, is not written yet, and {error}"
                ) from None
        if exercise.number not in self._said:
            self._said.add(exercise.number)
            Console(markup=False, highlight=False).print(
                f"Exercise {exercise.number}, {exercise.name}, is not written yet: using the solution's "
                "instead. Run this cell again when you have written yours.",
                style="yellow",
            )
        return getattr(self._solution, name)


def code(chapter: int) -> Code:
    """The functions of a chapter's exercises, from the file as it is saved now.

    Raises:
        CourseError: there is no such chapter.
        SyntaxError: the reader's file is not Python.
    """
    return Code(registry.chapter(chapter), default_impl())


def check(number: str | int) -> CheckReport:
    """Check a chapter or an exercise, and return the report that `minipaged check` shows.

    Raises:
        CourseError: there is no chapter or exercise of that number.
    """
    report = check_numbered(str(number), warm=True, look=every_ten_seconds(sys.stderr))
    if report.remark:
        print(report.remark, file=sys.stderr)
    return report


def bug(chapter: int, name: str) -> ModuleType:
    """The functions of the chapter's solution, with one bug in them.

    Raises:
        CourseError: the chapter has no bug of that name, or the solutions are missing.
    """
    return zoo.load_mutant(registry.chapter(chapter), name)


def my_parts(*chapters: int, **options: Unpack[EngineOptions]) -> ResolvedParts:
    """The engine's parts, with everything that the reader has written in these chapters.

    Use them as `LLM("tiny", parts=my_parts().parts)`.

    Args:
        chapters: numbers of chapters; all chapters if none is given.
        options: the engine's options, as for `LLM`. Parts that do not fit them are left out, such as the
            paged ones with `my_parts(kv_layout="contiguous")`.

    Raises:
        CourseError: there is no such chapter.
        NotYet: the reader has not written any exercise that the engine can use.
    """
    chosen = [registry.chapter(number) for number in chapters] or registry.chapters()
    sources: list[Implementation] = [implementation(chapter, default_impl()) for chapter in chosen]
    return resolve(sources).used_by(EngineConfig(**options))
