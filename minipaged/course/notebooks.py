"""Notebooks: a chapter's Markdown (jupytext), turned into cells, executed, and written as `.ipynb`.

Slides: every cell gets a `slide_type`, so that `jupyter nbconvert --to slides` gives the talk. What
the Markdown does not say follows from the cell: a heading begins a slide (`##`) or a slide below it
(`###`); code stays on the slide, or begins one below where it would run off the screen; other prose
is speaker notes.
"""

from __future__ import annotations

import os
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from minipaged.course import folders
from minipaged.course.chapter import Chapter

CELL_SECONDS = 300
"""Longer than any cell takes, also on a machine that is busy with something else."""

LINES_OF_A_SLIDE = 24
"""Of text and code; what is longer by itself, and outputs, scroll."""

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cells_of(chapter: Chapter) -> NotebookNode:
    """The chapter as a notebook that nobody has executed. The same source gives the same notebook."""
    notebook = jupytext.read(folders.chapter_source(chapter), fmt="md")
    kept = [cell for cell in notebook.cells if cell.source.strip()]
    on_slide = 0
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number:03}"
        num_lines = len(cell.source.splitlines())
        is_full = on_slide > 0 and on_slide + num_lines > LINES_OF_A_SLIDE
        cell.metadata.setdefault("slideshow", {"slide_type": _slide_type(cell, is_full)})
        kind = cell.metadata["slideshow"]["slide_type"]
        if kind not in ("notes", "skip"):
            on_slide = num_lines + (0 if kind in ("slide", "subslide") else on_slide)
        if cell.cell_type == "code":
            cell["execution_count"], cell["outputs"] = None, []
    result = nbformat.v4.new_notebook(cells=kept, metadata={"kernelspec": _KERNEL})
    result.nbformat_minor = 5
    return result


def execute(notebook: NotebookNode, folder: Path, impl: str) -> NotebookNode:
    """Run all cells in `folder`, with the exercises of `impl`; a cell that fails stops it.

    Raises:
        CellExecutionError: a cell raised, or took longer than `CELL_SECONDS`.
    """
    environment = os.environ | {
        "MINIPAGED_IMPL": impl,
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "80",  # what a page of 800 pixels has room for
        "JUPYTER_COLUMNS": "80",  # the same, for rich
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
    )
    executed = client.execute(env=environment)
    # The kernel adds its own version; the outputs should be the same on every machine.
    executed.metadata = NotebookNode({"kernelspec": NotebookNode(_KERNEL)})
    return executed


def write_executed(chapter: Chapter) -> Path:
    """Execute a chapter with the solutions, and write the notebook beside its source.

    Raises:
        CellExecutionError: a cell raised.
    """
    executed = execute(cells_of(chapter), folders.chapter_folder(chapter), "solutions")
    path = folders.notebook_file(chapter)
    nbformat.write(executed, path)
    return path


def differences(chapter: Chapter) -> list[str]:
    """Where the notebook's cells are not those of its source; empty if the two are in step."""
    path = folders.notebook_file(chapter)
    if not path.is_file():
        return [f"{folders.shown(path)} is missing"]
    wanted, there = cells_of(chapter).cells, nbformat.read(path, as_version=4).cells
    found = [f"{len(there)} cells, not {len(wanted)}"] if len(wanted) != len(there) else []
    for ours, theirs in zip(wanted, there, strict=False):
        if (ours.cell_type, ours.source) != (theirs.cell_type, theirs.source):
            found.append(f"{ours['id']} differs: {ours.source.splitlines()[0]!r}")
        elif ours.metadata.get("slideshow") != theirs.metadata.get("slideshow"):
            found.append(f"{ours['id']} has another slide type")
    return found


def _slide_type(cell: NotebookNode, slide_is_full: bool) -> str:
    if cell.cell_type == "code":
        return "subslide" if slide_is_full else "-"
    first = cell.source.lstrip().splitlines()[0]
    if first.startswith(("# ", "## ")):
        return "slide"
    return "subslide" if first.startswith("### ") else "notes"
