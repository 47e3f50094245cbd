"""The committed notebooks: readable on a narrow page, and the same on every machine."""

from __future__ import annotations

import re
from itertools import pairwise

import nbformat
import pytest

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter
from minipaged.course.notebooks import cells_of
from minipaged.course.slides import CODE_COLUMNS

MOST_LINES = 40

each_chapter = pytest.mark.parametrize("chapter", registry.chapters(), ids=lambda chapter: chapter.stem)


@each_chapter
def test_code_fits_a_slide_and_a_narrow_page(chapter: Chapter) -> None:
    wide = [
        line
        for cell in cells_of(chapter).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if len(line) > CODE_COLUMNS
    ]
    assert wide == []


@each_chapter
def test_outputs_are_short_complete_and_without_paths_of_a_machine(chapter: Chapter) -> None:
    executed = nbformat.read(folders.notebook_file(chapter), as_version=4)
    for cell in executed.cells:
        if cell.cell_type != "code":
            continue
        assert cell.execution_count is not None, cell["id"]
        for output in cell.outputs:
            assert output.output_type != "error", cell["id"]
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            assert len(text.splitlines()) <= MOST_LINES, cell["id"]
            for path in (str(folders.root()), "/home/", "/Users/", "site-packages"):
                assert path not in text, cell["id"]


@each_chapter
def test_no_sentence_becomes_a_list(chapter: Chapter) -> None:
    """A line of prose that begins with "1. " would become a list."""
    lines = folders.chapter_source(chapter).read_text(encoding="utf-8").splitlines()
    first = [
        line
        for before, line in pairwise(lines)
        if re.match(r"1\. |[-+*] ", line) and before.strip() and not re.match(r" |\d+\. |[-+*] ", before)
    ]
    assert first == []
