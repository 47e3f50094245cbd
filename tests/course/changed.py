"""Exercise files of chapter 1 in which some functions have another body, for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from minipaged.course import folders, registry, stubs

CHAPTER = registry.chapter(1)
SOLVED = stubs.without_markers(folders.solution_text(CHAPTER))


def with_bodies(bodies: dict[str, str]) -> str:
    """The solution file, with these bodies after the functions' docstrings."""
    text = SOLVED
    for name, body in bodies.items():
        written = stubs.text_of(SOLVED, name)
        head = written[: written.rindex('"""') + 3]
        text = text.replace(written, f"{head}\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}")
    return text


def write(folder: Path, text: str) -> str:
    """Write the exercise file into a folder, for `--impl FOLDER`."""
    (folder / f"{CHAPTER.stem}.py").write_text(text, encoding="utf-8")
    return str(folder)
