"""Reads the hints: three for each exercise, in one Markdown file for each chapter. The file looks like this:

# 4.2
## 1
What to think about.
## 2
How to go about it.
## 3
Nearly the code.
"""

from __future__ import annotations

import re

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.errors import CourseError

NUM_LEVELS = 3

_EXERCISE = re.compile(r"# ([1-9]\.[1-9][0-9]?)")
_LEVEL = re.compile(r"## ([1-9])")


def read_hints(chapter: Chapter) -> dict[str, tuple[str, ...]]:
    """The hints of a chapter, by the exercise's number. The smallest hint of an exercise comes first.

    Raises:
        CourseError: the file does not have the format above.
    """
    return parse_hints(folders.hints_file(chapter).read_text(encoding="utf-8"))


def parse_hints(text: str) -> dict[str, tuple[str, ...]]:
    """The hints in the text of a file; see `read_hints`."""
    found: dict[str, list[list[str]]] = {}
    number, in_code = "", False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        exercise, level = (None, None) if in_code else (_EXERCISE.fullmatch(line), _LEVEL.fullmatch(line))
        if exercise is not None:
            number = exercise[1]
            if number in found:
                raise CourseError(f"two groups of hints for {number}")
            found[number] = []
        elif level is not None:
            levels = found.get(number)
            if levels is None or len(levels) + 1 != int(level[1]):
                raise CourseError(f"hints for {number or 'no exercise'}: {line!r} is out of order")
            levels.append([])
        elif line.strip() and not (number and found[number]):
            raise CourseError(f"text before the first hint: {line!r}")
        elif number and found[number]:
            found[number][-1].append(line)
    return {number: tuple("\n".join(lines).strip() for lines in levels) for number, levels in found.items()}
