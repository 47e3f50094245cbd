"""The existing chapters. Each is a package `minipaged.course.chNN`, found by its name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

from minipaged.course.chapter import Chapter, Exercise, chapter_of
from minipaged.errors import CourseError

_PACKAGE = re.compile(r"ch[0-9]{2}")


@cache
def chapters() -> tuple[Chapter, ...]:
    """All chapters, in order."""
    names = sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if _PACKAGE.fullmatch(module.name)
    )
    return tuple(importlib.import_module(f"minipaged.course.{name}").CHAPTER for name in names)


def chapter(number: int) -> Chapter:
    """The chapter of that number.

    Raises:
        CourseError: there is no such chapter or exercise.
    """
    for each in chapters():
        if each.number == number:
            return each
    numbers = ", ".join(str(each.number) for each in chapters())
    raise CourseError(f"there is no chapter {number}. There are: {numbers}")


def exercise(number: str) -> Exercise:
    """The exercise of that number.

    Raises:
        CourseError: there is no such chapter or exercise.
    """
    home = chapter(chapter_of(number))
    for each in home.exercises:
        if each.number == number:
            return each
    numbers = ", ".join(each.number for each in home.exercises)
    raise CourseError(f"there is no exercise {number}. Chapter {home.number} has {numbers}")


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise of every chapter, in order."""
    return tuple(exercise for chapter in chapters() for exercise in chapter.exercises)
