"""A chapter as a talk: every slide fits on the screen, and tasks and figures are on slides.

Heights are estimated, so no browser is needed. `minipaged/course/slides.py` says how.
"""

from __future__ import annotations

import html
import re

import nbformat
import pytest
from nbformat import NotebookNode

from minipaged.course import folders, registry
from minipaged.course.chapter import Chapter
from minipaged.course.interview import questions
from minipaged.course.slides import (
    OUTPUT_COLUMNS,
    QUESTION,
    SLIDE_HEIGHT,
    TASK,
    cell_height,
    image_bytes,
    lay_out,
    output_text,
    prose_height,
    slides,
)

each_chapter = pytest.mark.parametrize("chapter", registry.chapters(), ids=lambda chapter: chapter.stem)


def _cells(chapter: Chapter) -> list[NotebookNode]:
    return nbformat.read(folders.notebook_file(chapter), as_version=4).cells


@each_chapter
def test_every_cell_has_its_place_in_the_talk(chapter: Chapter) -> None:
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in _cells(chapter)]
    assert set(kinds) <= {"slide", "subslide", "fragment", "notes", "skip", "-"}
    assert kinds[0] == "slide"
    assert kinds.count("slide") >= 5


@each_chapter
def test_no_slide_is_higher_than_the_screen(chapter: Chapter) -> None:
    high = [
        (slide.cells[0].source.splitlines()[0], round(slide.height))
        for slide in slides(_cells(chapter))
        if slide.height > SLIDE_HEIGHT
    ]
    assert high == []


@each_chapter
def test_a_slide_has_room_for_an_opened_answer(chapter: Chapter) -> None:
    high = [
        question.question
        for slide in slides(_cells(chapter))
        for cell in slide.cells
        if QUESTION in cell.source
        for question in questions(cell.source)
        if slide.height + prose_height(question.answer) > SLIDE_HEIGHT
    ]
    assert high == []


@each_chapter
def test_no_output_on_a_slide_is_wider_than_it(chapter: Chapter) -> None:
    wide = [
        line
        for slide in slides(_cells(chapter))
        for cell in slide.cells
        for output in cell.get("outputs", ())
        if image_bytes(output) is None
        for line in output_text(output).splitlines()
        if len(line) > OUTPUT_COLUMNS
    ]
    assert wide == []


@each_chapter
def test_every_task_is_on_a_slide_with_its_check(chapter: Chapter) -> None:
    found = {
        number[1]: [cell.source for cell in slide.cells]
        for slide in slides(_cells(chapter))
        for cell in slide.cells
        if (number := re.match(rf"{re.escape(TASK)} (\d+\.\d+)", cell.source))
    }
    assert list(found) == [exercise.number for exercise in chapter.exercises]
    for exercise in chapter.exercises:
        task, *below = found[exercise.number]
        assert len(task) > 90, f"{exercise.number}: the task says too little to stand alone"
        assert len(below) == 1, exercise.number
        assert f'check("{exercise.number}")' in below[0]
        for name in exercise.names:
            assert name.partition(".")[0] in task, (exercise.number, name)


@each_chapter
def test_every_figure_is_there_in_words(chapter: Chapter) -> None:
    num_figures = 0
    for cell in _cells(chapter):
        for output in cell.get("outputs", ()):
            if image_bytes(output) is None:
                continue
            num_figures += 1
            assert "image/png" not in output.data, f"{cell.id}: shown without `figures.show`"
            alt = re.search(r'<img alt="([^"]*)"', output.data["text/html"])
            assert alt, cell.id
            words = html.unescape(alt[1])
            assert len(words) > 60, cell.id
            assert words.endswith("."), cell.id
            assert words == output_text(output), cell.id
    assert num_figures >= 4


# The rules of the layout


def _code(source: str, output: str = "") -> NotebookNode:
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=output)] if output else []
    return nbformat.v4.new_code_cell(source, outputs=outputs)


def _types(*cells: NotebookNode) -> list[str]:
    lay_out(cells)
    return [cell.metadata["slideshow"]["slide_type"] for cell in cells]


def test_headings_tasks_and_questions_begin_a_slide_and_other_prose_is_notes() -> None:
    prose = (
        "# A",
        "Words.",
        "## B",
        "### C",
        f"{TASK} 1.1.** Write.",
        f"{QUESTION}\n<summary>Why?</summary>",
    )
    cells = [nbformat.v4.new_markdown_cell(text) for text in prose]
    assert _types(*cells) == ["slide", "notes", "slide", "subslide", "subslide", "subslide"]


def test_code_stays_on_its_slide_until_that_is_full() -> None:
    heading = nbformat.v4.new_markdown_cell("## B")
    short, long = _code("x"), _code("\n".join("x" * 20))
    assert _types(heading, short, long, _code("x\ny")) == ["slide", "-", "-", "subslide"]
    assert _types(nbformat.v4.new_markdown_cell("## B"), _code("x", "y\n" * 30)) == ["slide", "subslide"]


def test_below_a_task_there_is_only_its_check() -> None:
    task = nbformat.v4.new_markdown_cell(f"{TASK} 1.1.** Write.")
    assert _types(task, _code('check("1.1")'), _code("x")) == ["subslide", "-", "subslide"]


def test_what_the_source_says_of_a_cell_holds() -> None:
    cells = [nbformat.v4.new_markdown_cell("## B"), _code("x")]
    cells[1].metadata["slideshow"] = {"slide_type": "skip"}
    assert _types(*cells) == ["slide", "skip"]
    assert [len(slide.cells) for slide in slides(cells)] == [1]


def test_heights_follow_from_lines() -> None:
    """The estimates are within a few pixels of Chromium's heights."""
    for source, measured in (("x", 55), ("\n".join("x" * 10), 260), ("\n".join("x" * 20), 488)):
        assert cell_height(_code(source)) == pytest.approx(measured, abs=3)
    for source, measured in (
        ("# H", 146),
        ("## H", 86),
        ("### H\n\npara", 122),
        ("para\n\n- item\n- item", 150),
        ("> quote", 116),
        ("| a | b |\n|---|---|\n| x | y |", 85),
        (f"{QUESTION}\n<summary>Sum</summary>\n\nA long answer, folded.\n\n</details>", 52),
    ):
        assert prose_height(source) == pytest.approx(measured, abs=12), source
