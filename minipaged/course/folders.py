"""Where the course's files are, in a clone of the repository."""

from __future__ import annotations

from pathlib import Path

import minipaged
from minipaged.course.chapter import Chapter
from minipaged.errors import CourseError


def root() -> Path:
    """The repository's folder.

    Raises:
        CourseError: the package was installed without the repository, so there are no chapters.
    """
    folder = Path(minipaged.__file__).resolve().parent.parent
    if not (folder / "chapters" / "conftest.py").is_file():
        raise CourseError(
            "the course is not in the installed package: clone the repository, and run "
            "`pip install -e .` in it"
        )
    return folder


def shown(path: Path) -> str:
    """A path in the form for messages: relative to the repository's folder if the path is inside it."""
    try:
        return path.relative_to(root()).as_posix()
    except ValueError:
        return str(path)


def exercise_file(chapter: Chapter) -> Path:
    """The file that the reader fills in."""
    return root() / "exercises" / f"{chapter.stem}.py"


def solution_file(chapter: Chapter) -> Path:
    """The solution file, from which the stub is made. The solved bodies are marked."""
    return root() / "solutions" / f"{chapter.stem}.py"


def solution_text(chapter: Chapter) -> str:
    """The text of the solution file.

    Raises:
        CourseError: this copy of the repository has no solutions.
    """
    path = solution_file(chapter)
    if not path.is_file():
        raise no_solutions(chapter)
    return path.read_text(encoding="utf-8")


def no_solutions(chapter: Chapter) -> CourseError:
    """The error for code that needs the solutions. Checks need none, so a reader may delete the folder."""
    path = shown(solution_file(chapter))
    return CourseError(
        f"there is no {path} in this copy of the repository: get it back with `git checkout {path}`"
    )


def chapter_folder(chapter: Chapter) -> Path:
    return root() / "chapters" / chapter.folder


def chapter_source(chapter: Chapter) -> Path:
    """The chapter as jupytext Markdown."""
    return chapter_folder(chapter) / f"{chapter.slug}.md"


def notebook_file(chapter: Chapter) -> Path:
    """The executed notebook."""
    return chapter_folder(chapter) / f"{chapter.slug}.ipynb"


def interview_file(chapter: Chapter) -> Path:
    """The chapter's interview questions on one page."""
    return chapter_folder(chapter) / "interview.md"


def hints_file(chapter: Chapter) -> Path:
    return Path(__file__).parent / f"ch{chapter.number:02}" / "hints.md"


def state_folder() -> Path:
    """The folder on this machine where the course saves results of checks, and which hints were shown."""
    return root() / ".minipaged"
