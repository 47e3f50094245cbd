"""Chapter and Exercise: what the course knows about each of them. This module imports nothing heavy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from minipaged.errors import CourseError

_NUMBER = re.compile(r"([1-9])\.([1-9][0-9]?)")


@dataclass(frozen=True)
class Exercise:
    """One task.

    Attributes:
        number: the chapter and the exercise's place in it, such as `"4.2"`.
        names: the functions that the reader writes. A method is given as `"Class.method"`. The first one is
            the exercise's name.
        title: the subject, in a few words.
        section: the exact heading of the chapter's section that explains the exercise.
        stretch: whether the exercise is optional.
    """

    number: str
    names: tuple[str, ...]
    title: str
    section: str
    stretch: bool = False

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def chapter(self) -> int:
        return chapter_of(self.number)


@dataclass(frozen=True)
class Chapter:
    """One chapter.

    Attributes:
        number: 1 to 8.
        slug: the chapter's short name in file names, as in `ch01_{slug}.py` and `{slug}.md`.
        title: the title in the chapter's heading.
        minutes: how long the chapter takes.
        exercises: the exercises, in the order in which to solve them.
    """

    number: int
    slug: str
    title: str
    minutes: int
    exercises: tuple[Exercise, ...]

    @property
    def stem(self) -> str:
        """The exercise file's name without its ending, such as `ch01_kv_size`."""
        return f"ch{self.number:02}_{self.slug}"

    @property
    def folder(self) -> str:
        """The name of its folder in `chapters/`, such as `01`."""
        return f"{self.number:02}"

    def exercise_of(self, name: str) -> Exercise | None:
        """The exercise in which the reader writes the function, class or method of that name."""
        for exercise in self.exercises:
            if any(name in (each, each.partition(".")[0]) for each in exercise.names):
                return exercise
        return None


def chapter_of(number: str) -> int:
    """The number of an exercise's chapter, such as 4 for the exercise `"4.2"`.

    Raises:
        CourseError: `number` is not the number of an exercise.
    """
    match = _NUMBER.fullmatch(number)
    if match is None:
        raise CourseError(f"{number!r} is not the number of an exercise: write it as in 4.2")
    return int(match[1])
