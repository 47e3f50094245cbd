"""exercises/README.md: which exercises the engine runs is what their seams say."""

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
    for number in alone & can_run:  # only a part of it runs
        assert f"of {number}" in row[0]


def _numbers(column: str, chapter: Chapter) -> set[str]:
    """The exercises that the entries of a column begin with; what follows a colon is a remark."""
    entries = column.partition(":")[0].split("; ")
    return {found[0] for entry in entries if (found := re.search(rf"{chapter.number}\.\d", entry))}
