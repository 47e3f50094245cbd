"""Notebooks: turn a chapter's Markdown (jupytext) into an executed `.ipynb`, laid out as slides."""

from __future__ import annotations

import os
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.course.slides import OUTPUT_COLUMNS, lay_out

CELL_SECONDS = 300
"""The time limit of a cell. No cell takes as long, even on a busy machine."""

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cells_of(chapter: Chapter) -> NotebookNode:
    """The chapter as a notebook that is not executed. The same source always gives the same notebook."""
    notebook = jupytext.read(folders.chapter_source(chapter), fmt="md")
    kept = [cell for cell in notebook.cells if cell.source.strip()]
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number:03}"
        if cell.cell_type == "code":
            cell["execution_count"], cell["outputs"] = None, []
    result = nbformat.v4.new_notebook(cells=kept, metadata={"kernelspec": _KERNEL})
    result.nbformat_minor = 5
    return result


def execute(notebook: NotebookNode, folder: Path, impl: str) -> NotebookNode:
    """Run all cells in `folder`, with the exercises of `impl`. The first cell that fails stops the run.

    Raises:
        CellExecutionError: a cell raised, or took longer than `CELL_SECONDS`.
    """
    environment = os.environ | {
        "MINIPAGED_IMPL": impl,
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": str(OUTPUT_COLUMNS),
        "JUPYTER_COLUMNS": str(OUTPUT_COLUMNS),  # the same, for rich
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,  # all text of a cell becomes one output, even if it was flushed in between
    )
    executed = client.execute(env=environment)
    # The kernel adds its version, but the notebook should be the same on every machine.
    executed.metadata = NotebookNode({"kernelspec": NotebookNode(_KERNEL)})
    return executed


def write_executed(chapter: Chapter) -> Path:
    """Execute a chapter with the solutions, and write the notebook next to its source.

    Raises:
        CellExecutionError: a cell raised.
    """
    executed = execute(cells_of(chapter), folders.chapter_folder(chapter), "solutions")
    lay_out(executed.cells)
    path = folders.notebook_file(chapter)
    nbformat.write(executed, path)
    return path


def differences(chapter: Chapter) -> list[str]:
    """How the notebook's cells differ from its source; empty if they agree."""
    path = folders.notebook_file(chapter)
    if not path.is_file():
        return [f"{folders.shown(path)} is missing"]
    wanted, there = cells_of(chapter).cells, nbformat.read(path, as_version=4).cells
    for ours, theirs in zip(wanted, there, strict=False):
        if ours.cell_type == theirs.cell_type == "code":
            ours["outputs"] = theirs.outputs
    lay_out(wanted)
    found = [f"{len(there)} cells, not {len(wanted)}"] if len(wanted) != len(there) else []
    for ours, theirs in zip(wanted, there, strict=False):
        if (ours.cell_type, ours.source) != (theirs.cell_type, theirs.source):
            found.append(f"{ours['id']} differs: {ours.source.splitlines()[0]!r}")
        elif ours.metadata.get("slideshow") != theirs.metadata.get("slideshow"):
            found.append(f"{ours['id']} has another slide type")
    return found
