"""The bug zoo: plausible wrong solutions, each of which its exercise's tests must catch.

A mutant is a change of the solution file's text. The mutants of a chapter are `MUTANTS` in
`minipaged/course/chNN/zoo.py`.
"""

from __future__ import annotations

import importlib
import linecache
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from minipaged.course import folders, stubs
from minipaged.course.chapter import Chapter
from minipaged.course.implementation import load_file
from minipaged.errors import CourseError


@dataclass(frozen=True)
class Mutant:
    """One wrong solution.

    Attributes:
        exercise: the exercise whose tests catch it.
        name: the bug in a few words, as an identifier such as `copies_after_the_write`.
        old: text of the solution that occurs exactly once in this exercise's marked bodies.
        new: the text that replaces it.
    """

    exercise: str
    name: str
    old: str
    new: str


def mutants(chapter: Chapter) -> tuple[Mutant, ...]:
    """The wrong solutions of a chapter."""
    return importlib.import_module(f"minipaged.course.ch{chapter.number:02}.zoo").MUTANTS


def mutate(source: str, mutant: Mutant) -> str:
    """The solution file's text with the mutant's bug, without the markers.

    Raises:
        CourseError: the old text is not in the exercise's bodies, or occurs more than once.
    """
    lines = source.splitlines(keepends=True)
    places = []
    for region in stubs.regions(source):
        if region.exercise == mutant.exercise:
            body = "".join(lines[region.begin + 1 : region.end])
            places += [(region, body)] * body.count(mutant.old)
    if len(places) != 1:
        raise CourseError(
            f"mutant {mutant.exercise} {mutant.name}: its old text occurs {len(places)} times in the "
            "solution of its exercise, and must occur once"
        )
    region, body = places[0]
    lines[region.begin + 1 : region.end] = [body.replace(mutant.old, mutant.new)]
    return stubs.without_markers("".join(lines))


def write_mutant(chapter: Chapter, mutant: Mutant, folder: Path) -> Path:
    """Write the exercise file with the bug into a folder, for `--impl FOLDER`."""
    path = folder / f"{chapter.stem}.py"
    path.write_text(mutate(folders.solution_text(chapter), mutant), encoding="utf-8")
    return path


def load_mutant(chapter: Chapter, name: str) -> ModuleType:
    """The chapter's module with one bug in it.

    Raises:
        CourseError: there is no mutant of that name, or the solutions are missing.
    """
    for mutant in mutants(chapter):
        if mutant.name == name:
            with TemporaryDirectory() as folder:
                path = write_mutant(chapter, mutant, Path(folder))
                # Triton reads a kernel's source when the kernel first runs, and the file is gone by then.
                text = path.read_text(encoding="utf-8")
                linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
                return load_file(path, f"bug.{chapter.stem}")
    raise CourseError(f"the zoo of chapter {chapter.number} has no {name!r}")
