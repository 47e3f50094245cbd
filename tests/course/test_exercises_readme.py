"""exercises/README.md lists the exercises that the engine runs, as their seams say."""

from __future__ import annotations

import re

import pytest

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter
from minipaged.course.seams import seams


@pytest.mark.parametrize("chapter", registry.chapters(), ids=lambda chapter: chapter.stem)
def test_what_the_engine_runs_is_said_of_every_exercise(chapter: Chapter) -> None:
    text = (folders.root() / "exercises" / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {chapter.number} \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert row, chapter.number
    runs, alone = (_numbers(column, chapter) for column in row.groups())
    can_run = {seam.exercise for seam in seams(chapter)}
    assert runs == can_run
    others = {exercise.number for exercise in chapter.exercises} - can_run
    assert others <= alone
    for number in alone & can_run:  # the engine runs only a part of this exercise
        assert f"of {number}" in row[0]


def _numbers(column: str, chapter: Chapter) -> set[str]:
    """The exercises at the beginning of a column's entries. Text after a colon is a remark."""
    entries = column.partition(":")[0].split("; ")
    return {found[0] for entry in entries if (found := re.search(rf"{chapter.number}\.\d", entry))}
