"""The words for a test that is *todo* or *wrong*."""

from __future__ import annotations

import linecache
import textwrap
import traceback
from pathlib import Path

from minipaged.course import folders
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.expect import Wrong
from minipaged.course.implementation import Implementation
from minipaged.course.not_yet import NotYet

_LABEL_WIDTH = 10
_WIDTH = 66  # with the label before it, a terminal of 80 columns
_SMALLEST = ("Falsifying example:", "Failing test case:")  # older and newer versions of hypothesis
_AS_IT_IS = ("state", "printed", "at")


class TookTooLongError(Exception):
    """A test that did not end."""


def todo_line(exercise: Exercise, code: Implementation, missing: NotYet) -> str:
    """One line for an exercise that nobody has written, or that waits for another one."""
    if missing.exercise != exercise.number:
        return (
            f"todo  {exercise.number} {exercise.name}: waits for {missing.exercise}, {missing.name}, "
            "which its tests call"
        )
    source = folders.shown(folders.chapter_source(code.chapter))
    return (
        f"todo  {exercise.number} {exercise.name} ({code.where(exercise)}): read “{exercise.section}” in "
        f"{source}; stuck? minipaged hint {exercise.number}"
    )


def todo_engine_line(chapter: Chapter, wanted: list[str]) -> str:
    """The line for the test in the engine, as long as none of its exercises is written."""
    return f"todo  chapter {chapter.number} in the engine: it can run with your code from {wanted[0]} on"


def wrong_text(
    exercise: Exercise | None, code: Implementation, test: str, error: BaseException, printed: str = ""
) -> str:
    """Some lines for a test that failed: the case, expected, got, rule, state, smallest, next."""
    if exercise is None:
        heading = f"wrong  chapter {code.chapter.number}, your code in the engine"
    else:
        heading = f"wrong  {exercise.number} {exercise.name} ({_where(exercise, code)})"
    lines = [heading, *_field("test", test)]
    if isinstance(error, Wrong):
        lines += _field("case", error.case) + _field("expected", error.expected)
        lines += _field("got", error.got) + _field("rule", error.rule) + _field("state", error.state)
    elif isinstance(error, SyntaxError):
        lines += _field("raised", f"{type(error).__name__}: {error.msg}")
        lines += _field("at", f"{folders.shown(Path(error.filename or '?'))}:{error.lineno}")
    elif isinstance(error, AssertionError):
        lines += _field("failed", str(error)) + _field("at", _place(error, code))
    else:
        lines += _field("raised", f"{type(error).__name__}: {error}".rstrip(": "))
        lines += _field("at", _place(error, code))
    lines += _field("smallest", _smallest(error))
    lines += _field("printed", printed.strip())
    if exercise is not None:
        source = folders.shown(folders.chapter_source(code.chapter))
        lines += _field("next", f"“{exercise.section}” in {source}\nminipaged hint {exercise.number}")
    return "\n".join(lines)


def _field(label: str, text: str) -> list[str]:
    """Nothing, if there is no text."""
    if not text:
        return []
    lines: list[str] = []
    for line in text.splitlines():
        # A drawing keeps its columns; prose is wrapped.
        lines += textwrap.wrap(line, _WIDTH) if len(line) > _WIDTH and label not in _AS_IT_IS else [line]
    first, *rest = lines or [""]
    blank = " " * (_LABEL_WIDTH + 2)
    return [f"  {label:<{_LABEL_WIDTH}}{first}", *(f"{blank}{line}".rstrip() for line in rest)]


def _where(exercise: Exercise, code: Implementation) -> str:
    return code.where(exercise)


def _place(error: BaseException, code: Implementation) -> str:
    """The innermost line of the checked code; else of the chapter's test."""
    frames = traceback.extract_tb(error.__traceback__)
    chapters = str(folders.root() / "chapters")
    ours = [frame for frame in frames if frame.filename == str(code.path)]
    tests = [frame for frame in frames if frame.filename.startswith(chapters)]
    chosen = ours[-1:] or tests[-1:]
    if not chosen:
        return ""
    frame = chosen[0]
    linecache.checkcache(frame.filename)
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{folders.shown(Path(frame.filename))}:{frame.lineno}: {line}"


def _smallest(error: BaseException) -> str:
    """The arguments of the smallest failing case, where hypothesis has found one."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_SMALLEST):
            return _arguments(note[note.index("(") + 1 : note.rindex(")")])
    return ""


def _arguments(inside: str) -> str:
    """One line for each argument of hypothesis's call, without its remarks and our fixtures."""
    arguments: list[str] = []
    for line in inside.splitlines():
        bare = line.partition("# ")[0].strip()  # it remarks which parts do not matter
        if line.startswith("    ") and line[4:5].strip(" )]}"):  # not the inside, or end, of the last one
            arguments.append(bare)
        elif arguments and bare:
            arguments[-1] += bare if arguments[-1].endswith("(") else f" {bare}"
    shown = [
        each.rstrip(",").replace("[ ", "[").replace(", )", ")").replace(", ]", "]") for each in arguments
    ]
    return "\n".join(each for each in shown if each and not each.startswith("code=<"))
