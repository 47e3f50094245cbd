"""Runs every notebook, with the solutions and with untouched exercises. Each takes up to a minute, so the
short run has only one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter
from minipaged.course.generate import stub_of
from minipaged.course.notebooks import cells_of, execute

MOST_SECONDS = 60
"""The most processor time of a notebook, including its checks. A reader with two cores waits less."""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("chapter", registry.chapters(), ids=lambda chapter: chapter.stem)
@pytest.mark.parametrize("whose", ["solutions", "untouched"])
def test_a_notebook_runs_to_its_end(chapter: Chapter, whose: str, tmp_path: Path) -> None:
    impl = whose
    if whose == "untouched":
        impl = str(tmp_path)
        for each in registry.chapters():
            (tmp_path / f"{each.stem}.py").write_text(stub_of(each), encoding="utf-8")
    before = _seconds_of_ended_processes()
    executed = execute(cells_of(chapter), folders.chapter_folder(chapter), impl)
    assert _seconds_of_ended_processes() - before < MOST_SECONDS
    text = "\n".join(
        output.get("text", "") or str(output.get("data", {}).get("text/plain", ""))
        for cell in executed.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert ("is not written yet" in text) == (whose == "untouched")


def _seconds_of_ended_processes() -> float:
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.long
def test_the_notebooks_become_slides(tmp_path: Path) -> None:
    from nbconvert import SlidesExporter

    for chapter in registry.chapters():
        copy = shutil.copy(folders.notebook_file(chapter), tmp_path)
        html, _ = SlidesExporter().from_filename(str(copy))
        assert html.count("<section") > 10
        assert "No description has been provided" not in html  # as nbconvert says of a bare image
