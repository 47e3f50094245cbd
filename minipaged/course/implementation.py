"""Implementation: the code that is checked, as a module that defines the names of a chapter's exercises."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from minipaged.course import folders, stubs
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.source_text import read_source
from minipaged.errors import CourseError

IMPLEMENTATIONS = ("mine", "solutions", "engine")


@dataclass(frozen=True)
class Implementation:
    """Where the code of one chapter comes from.

    Attributes:
        name: `"mine"`, `"solutions"`, `"engine"`, or a folder with exercise files.
        path: the file.
    """

    chapter: Chapter
    name: str
    path: Path

    @property
    def is_complete(self) -> bool:
        """Whether every exercise is sure to be written, as in the solutions and in the engine's code."""
        return self.name in ("solutions", "engine")

    def load(self) -> ModuleType:
        """Execute the file.

        Raises:
            Exception: anything that the reader's file raises when it is imported.
        """
        if self.name == "engine":
            return importlib.import_module(_engine_module(self.chapter))
        return load_file(self.path, f"{self.path.parent.name}.{self.chapter.stem}")

    def source(self) -> str:
        """The file's text.

        Raises:
            SyntaxError: Python could not read the file; see `read_source`.
        """
        return read_source(self.path)

    def written(self) -> frozenset[str]:
        """The exercises of the chapter that no longer raise `NotYet`, whether right or wrong.

        Raises:
            SyntaxError: the file is not Python.
        """
        numbers = {exercise.number for exercise in self.chapter.exercises}
        if self.is_complete:
            return frozenset(numbers)
        return frozenset(numbers - stubs.unwritten(self.source(), str(self.path)).keys())

    def unwritten(self, exercise: Exercise) -> tuple[str, ...]:
        """The functions of an exercise that still raise `NotYet`, in order.

        The result is empty if the file is not Python.
        """
        if self.is_complete:
            return ()
        try:
            missing = stubs.unwritten(self.source()).get(exercise.number, [])
        except SyntaxError:
            return ()
        return tuple(name for name in exercise.names if name in missing)

    def has_begun(self, exercise: Exercise) -> bool:
        """Whether some functions of an exercise are written and others are not."""
        return 0 < len(self.unwritten(exercise)) < len(exercise.names)

    def where(self, exercise: Exercise, name: str | None = None) -> str:
        """File and line of an exercise or of one of its functions, for messages.

        If the file is not Python, the line is that of the syntax error.
        """
        try:
            line = stubs.line_of(self.source(), name or exercise.name)
        except SyntaxError as error:
            line = error.lineno
        return folders.shown(self.path) if line is None else f"{folders.shown(self.path)}:{line}"


def implementation(chapter: Chapter, name: str) -> Implementation:
    """The implementation for a name: `"mine"`, `"solutions"`, `"engine"`, or a folder of exercise files.

    Raises:
        CourseError: there is no such folder, or it has no file for this chapter.
    """
    if name == "engine":
        spec = importlib.util.find_spec(_engine_module(chapter))
        if spec is None or spec.origin is None:
            raise CourseError(f"chapter {chapter.number} does not say which code of the engine it is about")
        return Implementation(chapter, name, Path(spec.origin))
    if name == "mine":
        path = folders.exercise_file(chapter)
    elif name == "solutions":
        path = folders.solution_file(chapter)
    else:
        path = Path(name).resolve() / f"{chapter.stem}.py"
    if name == "solutions" and not path.is_file():
        raise folders.no_solutions(chapter)
    if not path.is_file():
        raise CourseError(
            f"there is no {folders.shown(path)}: --impl takes {', '.join(IMPLEMENTATIONS)}, or a folder "
            f"with {chapter.stem}.py in it (`minipaged reset {chapter.number}` makes a new stub)"
        )
    return Implementation(chapter, name, path)


def load_file(path: Path, name: str) -> ModuleType:
    """Execute a Python file as a module of that name, even if it was executed before.

    Raises:
        Exception: anything that the file raises.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module while it is executed
    # Python's loader would miss a second save within the same second, so the file is compiled here.
    exec(compile(read_source(path), str(path), "exec"), module.__dict__)
    return module


def _engine_module(chapter: Chapter) -> str:
    return f"minipaged.course.ch{chapter.number:02}.engine"
