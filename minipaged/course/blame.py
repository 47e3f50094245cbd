"""Which functions a failing test is about, and which earlier ones they stand on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection

from minipaged.course import folders, stubs
from minipaged.course.calls import Call
from minipaged.course.chapter import Exercise
from minipaged.course.expect import Wrong
from minipaged.course.implementation import Implementation
from minipaged.course.results import WHOLE_FILE
from minipaged.course.time_limit import StoppedError


def to_blame(
    exercise: Exercise,
    code: Implementation,
    error: BaseException,
    call: Call | None = None,
    about: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Which functions of an exercise failed: the one that raised; else those that the test's marker names;
    else those of the case; else the one that was called last; else those that the test calls; else all.

    Args:
        exercise: whose test failed.
        code: that was checked.
        error: why.
        call: the test's last one.
        about: the names in the test's marker.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if frame.f_code.co_filename == str(code.path) and frame.f_code.co_qualname in exercise.names:
            return (frame.f_code.co_qualname,)
    if about:
        return about
    if isinstance(error, Wrong):
        words = set(re.findall(r"\w+", error.case))
        if named := _among(exercise, words):
            return named
    elif call is not None and call.name in exercise.names:
        return (call.name,)
    tests = str(folders.chapter_folder(code.chapter))
    called = {name for f in frames if f.f_code.co_filename.startswith(tests) for name in f.f_code.co_names}
    return _among(exercise, called) or exercise.names


def _among(exercise: Exercise, words: set[str]) -> tuple[str, ...]:
    """Those of an exercise's names that are among these words. A class is named by making an object,
    which every case of its methods does: it counts where nothing else is named."""
    named = tuple(name for name in exercise.names if name.rpartition(".")[2] in words)
    return named or tuple(name for name in exercise.names if name.partition(".")[0] in words)


def is_of_the_file(code: Implementation, error: BaseException) -> bool:
    """Whether an error keeps the whole checked file from use: it is not Python, or its import failed."""
    if isinstance(error, SyntaxError):
        return error.filename == str(code.path)
    if isinstance(error, StoppedError) and error.whole_file:
        return True
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(each.co_filename == str(code.path) and each.co_name == WHOLE_FILE for each in frames)


def innermost(code: Implementation, error: BaseException) -> str:
    """The function of the checked file that was running when the error came, as `Class.method`; empty if
    none was."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [each.co_qualname for each in frames if each.co_filename == str(code.path)]
    return names[-1].partition(".<locals>")[0] if names else ""


def raised_inside(exercise: Exercise, code: Implementation, error: BaseException) -> bool:
    """Whether an error comes out of one of the exercise's functions, and not out of its test."""
    return any(
        frame.f_code.co_filename == str(code.path) and frame.f_code.co_qualname in exercise.names
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def needed(exercise: Exercise, code: Implementation, called: Collection[str] = ()) -> tuple[str, ...]:
    """The functions and classes of the chapter's earlier exercises that this one's call in the checked
    file, directly or through others; in order.

    Args:
        exercise: that stands on others.
        code: whose file is read. The engine's, and one that is not Python, need nothing.
        called: what else counts as the exercise's: what its test has called.
    """
    if code.name == "engine":
        return ()
    try:
        used = stubs.names_behind(code.source(), {*exercise.names, *called})
    except SyntaxError:
        return ()
    order = [each.number for each in code.chapter.exercises]
    earlier = code.chapter.exercises[: order.index(exercise.number)]
    names = dict.fromkeys(name.partition(".")[0] for each in earlier for name in each.names)
    return tuple(name for name in names if name in used)
