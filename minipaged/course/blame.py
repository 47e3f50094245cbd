"""Which functions a failing test is about, and which earlier functions they need."""

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
    """Which functions of an exercise failed.

    These sources are tried in order, and the first one that gives a name decides: the function that raised,
    the names in the test's marker, the names in the message's case, the function that was called last, and
    the functions that the test calls. If no source gives a name, all functions of the exercise are returned.

    Args:
        exercise: the exercise whose test failed.
        code: the code that was checked.
        error: why the test failed.
        call: the last call that the test made.
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
    """The exercise's names that are among these words.

    A case that is about a method also names the class, because it has to make an object first. So a class
    counts only if no method is named.
    """
    named = tuple(name for name in exercise.names if name.rpartition(".")[2] in words)
    return named or tuple(name for name in exercise.names if name.partition(".")[0] in words)


def is_of_the_file(code: Implementation, error: BaseException) -> bool:
    """Whether an error makes the whole checked file unusable: it is not Python, or its import failed."""
    if isinstance(error, SyntaxError):
        return error.filename == str(code.path)
    if isinstance(error, StoppedError) and error.whole_file:
        return True
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(each.co_filename == str(code.path) and each.co_name == WHOLE_FILE for each in frames)


def innermost(code: Implementation, error: BaseException) -> str:
    """The checked file's function in which the error arose, as `Class.method`; empty if there is none."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [each.co_qualname for each in frames if each.co_filename == str(code.path)]
    return names[-1].partition(".<locals>")[0] if names else ""


def raised_inside(exercise: Exercise, code: Implementation, error: BaseException) -> bool:
    """Whether an error was raised inside one of the exercise's functions, and not in its test."""
    return any(
        frame.f_code.co_filename == str(code.path) and frame.f_code.co_qualname in exercise.names
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def needed(exercise: Exercise, code: Implementation, called: Collection[str] = ()) -> tuple[str, ...]:
    """The functions and classes of earlier exercises in the chapter that this exercise uses, in order.

    It may use them directly or through other functions of the checked file.

    Args:
        exercise: the exercise that may use others.
        code: the code whose file is read. The result is empty for the engine's code, and for a file that is
            not Python.
        called: the functions that the exercise's test has called. They count as the exercise's own, too.
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
