"""Slides: which cells of a notebook form a slide, and how high the slide is.

`jupyter nbconvert --to slides` reads a `slide_type` in each cell. If the chapter's source does not set it, it
follows from the cell:

- A heading begins a slide (`##`), or a slide below it (`###`). So do tasks and cells of interview questions.
- Other prose is speaker notes.
- Code stays on the slide if it fits there with its output. Otherwise it begins a slide below. On the slide of
  a task, only the task's check follows.

Heights are in pixels of a slide. With nbconvert's settings for reveal.js, a slide has 960 × 700. The numbers
were measured in Chromium with nbconvert's style, in a window of 1280 × 720.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from nbformat import NotebookNode

SLIDE_HEIGHT = 675
"""The largest height of a slide's cells, in pixels. The rest of the slide's 700 pixels is a margin for
estimates that are too low."""

CODE_COLUMNS = 71
"""The most characters that a line of code may have. A longer line is cut off."""

OUTPUT_COLUMNS = 62
"""The most characters that a line of output may have. A longer line wraps or is cut off."""

TASK = "> **Exercise"
"""The beginning of a task's cell."""

QUESTION = '<details class="interview">'
"""The beginning of an interview question."""

_PROSE_COLUMNS, _ITEM_COLUMNS, _TABLE_COLUMNS, _QUOTE_COLUMNS = 77, 68, 62, 56
_IMAGE = re.compile(r"base64,([A-Za-z0-9+/=]+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
_HEADINGS = {"h1": (136, 92, 22), "h2": (76, 54, 44), "h3": (56, 40, 60)}
"""For each heading: the height of its first line with margins, that of a further line, and the number of
characters in a line."""
_MARKDOWN = MarkdownIt("commonmark").enable("table")


class Slide(NamedTuple):
    """The cells that are shown together, and their height in pixels."""

    cells: list[NotebookNode]
    height: float


def lay_out(cells: Sequence[NotebookNode]) -> None:
    """Give a `slide_type` to each executed cell that has none. Outputs count, since they take space."""
    height, has_task = 0.0, False
    for cell in cells:
        more = cell_height(cell)
        kind = (cell.metadata.get("slideshow") or {}).get("slide_type")
        if kind is None:
            stays = height + more <= SLIDE_HEIGHT and not (has_task and "check(" not in cell.source)
            kind = _slide_type(cell, stays)
            cell.metadata["slideshow"] = NotebookNode(slide_type=kind)
        if kind in ("slide", "subslide"):
            height, has_task = more, cell.source.startswith(TASK)
        elif kind not in ("notes", "skip"):
            height += more


def slides(cells: Sequence[NotebookNode]) -> Iterator[Slide]:
    """The slides that these cells form. Each cell has its `slide_type` already."""
    shown: list[NotebookNode] = []
    for cell in cells:
        kind = cell.metadata["slideshow"]["slide_type"]
        if kind in ("slide", "subslide") and shown:
            yield Slide(shown, sum(map(cell_height, shown)))
            shown = []
        if kind not in ("notes", "skip"):
            shown.append(cell)
    if shown:
        yield Slide(shown, sum(map(cell_height, shown)))


def cell_height(cell: NotebookNode) -> float:
    """The height of a cell with its outputs, in pixels."""
    if cell.cell_type != "code":
        return prose_height(cell.source)
    return 32 + 22.8 * len(cell.source.splitlines()) + sum(map(_output_height, cell.get("outputs", ())))


def image_bytes(output: NotebookNode) -> bytes | None:
    """The PNG file that an output shows, or `None`."""
    data = output.get("data", {})
    bare = data.get("image/png")
    found = _IMAGE.search(data.get("text/html", ""))
    source = bare or (found and found[1])
    return base64.b64decode(source) if source else None


def output_text(output: NotebookNode) -> str:
    """The text of an output."""
    return _ANSI.sub("", output.get("text") or output.get("data", {}).get("text/plain", ""))


def _slide_type(cell: NotebookNode, stays: bool) -> str:
    source = cell.source.lstrip()
    if cell.cell_type == "code":
        return "-" if stays else "subslide"
    if source.startswith(("# ", "## ")):
        return "slide"
    return "subslide" if source.startswith(("### ", TASK, QUESTION)) else "notes"


def _output_height(output: NotebookNode) -> float:
    image = image_bytes(output)
    if image is not None:
        return 38 + int.from_bytes(image[20:24], "big")  # the height, in a PNG file's header
    lines = output_text(output).splitlines()
    return 21 + 23 * sum(max(1, ceil(len(line) / OUTPUT_COLUMNS)) for line in lines)


def prose_height(source: str) -> float:
    """The height of Markdown, in pixels. Of a folded answer, only the question counts."""
    height, opened, is_folded = 20.0, [], False
    rows: list[list[float]] = []
    for token in _MARKDOWN.parse(source):
        if token.type == "html_block":
            summary = _SUMMARY.search(token.content)
            height += 0 if summary is None else _lines_height(len(summary[1]), 32, _ITEM_COLUMNS)
            is_folded = (is_folded or summary is not None) and "</details>" not in token.content
        elif is_folded:
            continue
        elif token.type == "fence":
            height += 9 + 23 * len(token.content.splitlines())
        elif token.nesting == 1:
            opened.append(token.tag)
            height += 22 if token.tag in ("ul", "ol") else 0
            if token.tag == "tr":
                rows.append([])
        elif token.nesting == -1:
            opened.pop()
            if token.tag == "table":
                height += _table_height(rows)
                rows = []
        elif token.type == "inline":
            length = sum(map(_width, token.children or ()))
            if rows:
                rows[-1].append(length)
            else:
                height += _paragraph_height(opened, length)
    return height


def _width(piece: Token) -> float:
    """Width in characters of prose. Characters of code are wider."""
    return 1.25 * len(piece.content) if piece.type == "code_inline" else len(piece.content) or 1


def _paragraph_height(opened: Sequence[str], length: float) -> float:
    """The height of text of this width inside these elements."""
    if opened[-1] in _HEADINGS:
        first, line, columns = _HEADINGS[opened[-1]]
        return first - line + _lines_height(length, line, columns)
    if "li" in opened:
        return _lines_height(length, 32, _ITEM_COLUMNS)
    if "blockquote" in opened:
        return 70 + _lines_height(length, 26, _QUOTE_COLUMNS)
    return 20 + _lines_height(length, 26, _PROSE_COLUMNS)


def _table_height(rows: Sequence[Sequence[float]]) -> float:
    """The height of a table, from the widths of its cells. The longest cell determines a column's width."""
    longest = [max(column) for column in zip(*rows, strict=True)]
    scale = min(1, _TABLE_COLUMNS / sum(longest))
    return sum(
        9 + max(_lines_height(n, 24, most * scale) for n, most in zip(row, longest, strict=True))
        for row in rows
    )


def _lines_height(length: float, line: float, columns: float) -> float:
    return line * max(1, ceil(length / columns))
