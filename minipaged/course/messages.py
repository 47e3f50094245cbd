"""The texts for a test that is *todo* or *wrong*."""

from __future__ import annotations

import textwrap

from minipaged.course import folders, raised
from minipaged.course.blame import innermost, is_of_the_file, raised_inside
from minipaged.course.calls import Call
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.expect import Wrong, show
from minipaged.course.implementation import Implementation, implementation
from minipaged.course.not_yet import NotYet
from minipaged.course.time_limit import StoppedError
from minipaged.errors import CourseError

_LABEL_WIDTH = 10
_WIDTH = 66  # with the label before the text, a line fits into 80 columns
_SMALLEST = ("Falsifying example:", "Failing test case:")  # in older and newer versions of hypothesis
_AS_IT_IS = ("state", "printed", "at")


def todo_line(
    exercise: Exercise, code: Implementation, missing: NotYet, waiting: tuple[str, ...] = ()
) -> str:
    """One line for an exercise that is not written, or whose test needs another one that is not written.

    Args:
        exercise: the exercise.
        code: the code that is checked.
        missing: the error that the test raised.
        waiting: the functions that the test is about, from `to_blame`.
    """
    if missing.exercise != exercise.number:
        names = ", ".join(waiting or exercise.names)
        calls = "which it calls" if raised_inside(exercise, code, missing) else "which its tests call"
        return f"todo  {exercise.number} {names}: waits for {missing.exercise}, {missing.name}, {calls}"
    names = code.unwritten(exercise) or (missing.name,)
    return (
        f"todo  {exercise.number} {', '.join(names)} ({code.where(exercise, names[0])}): read "
        f"“{exercise.section}” in {_to_read(code)}; stuck? minipaged hint {exercise.number}"
    )


def todo_engine_line(chapter: Chapter, wanted: list[str]) -> str:
    """The line for the test in the engine while none of the chapter's exercises is written."""
    return f"todo  chapter {chapter.number} in the engine: it can run with your code from {wanted[0]} on"


def wrong_text(
    exercise: Exercise | None,
    code: Implementation,
    test: str,
    error: BaseException,
    *,
    blamed: tuple[str, ...] = (),
    printed: str = "",
    call: Call | None = None,
    place: tuple[str, int] | None = None,
) -> str:
    """The text for a failed test: its case, expected, got, rule, state, smallest case and next step.

    Args:
        exercise: the test's exercise; `None` for the test in the engine.
        code: the code that was checked.
        test: the test's name.
        error: why it failed.
        blamed: the functions of the exercise that failed, from `to_blame`. If empty, all are named.
        printed: what the code printed.
        call: the last call that the test made, if any. If the code raises, the text shows it as the case.
        place: file and line of the error, if the error itself does not have them.
    """
    if is_of_the_file(code, error):
        return _of_the_file(code, error, place, printed)
    if exercise is None:
        heading = f"wrong  chapter {code.chapter.number}, your code in the engine"
    else:
        names = blamed or exercise.names
        # If several functions are named, the line of one of them could point to the wrong place.
        where = code.where(exercise, names[0]) if len(names) == 1 else folders.shown(code.path)
        heading = f"wrong  {exercise.number} {', '.join(names)} ({where})"
    lines = [heading, *_field("test", test)]
    if isinstance(error, Wrong):
        lines += _field("case", error.case) + _field("expected", error.expected)
        lines += _field("got", error.got) + _field("rule", error.rule) + _field("state", error.state)
    elif call is not None:
        lines += _of_a_call(call, code, error)
    elif place is not None:
        lines += [*_why(error), *_field("at", raised.line_at(*place))]
    else:
        lines += _in_the_engine(code, error)
    lines += _field("smallest", _smallest(error))
    lines += _field("printed", printed.strip())
    if exercise is not None:
        lines += _field("next", f"“{exercise.section}” in {_to_read(code)}\nminipaged hint {exercise.number}")
    return "\n".join(lines)


def _of_the_file(
    code: Implementation, error: BaseException, place: tuple[str, int] | None, printed: str
) -> str:
    """The text for a file that is not Python or cannot be imported. All its exercises get the same text."""
    if isinstance(error, SyntaxError):
        why = _field("raised", f"{type(error).__name__}: {error.msg}")
        place = None if error.lineno is None else (str(code.path), error.lineno)
    else:
        why = _why(error)
    at = raised.place_of(error, code, None) if place is None else raised.line_at(*place)
    heading = f"wrong  {folders.shown(code.path)}: nothing in it can be checked"
    return "\n".join([heading, *why, *_field("at", at), *_field("printed", printed.strip())])


def _of_a_call(call: Call, code: Implementation, error: BaseException) -> list[str]:
    """Lines for a call that raised, or whose result made the test raise."""
    try:
        expected = raised.expected_of(call, implementation(code.chapter, "solutions").load())
    except CourseError:  # a copy of the repository without the solutions
        expected = ""
    lines = _field("case", raised.case_of(call)) + _field("expected", expected)
    remark = ""
    if call.has_returned and not (isinstance(error, StoppedError) and innermost(code, error)):
        lines += _field("got", show(call.result))
        remark = ", in the test: it cannot use what it got"
    lines += _why(error, remark) + _field("at", raised.place_of(error, code, call))
    return [
        *lines,
        *_field("rule", raised.rule_of(call.function)),
        *_field("state", raised.state_of(code.chapter, call)),
    ]


def _in_the_engine(code: Implementation, error: BaseException) -> list[str]:
    """Lines for an error that did not come from a test's call, but from the engine or from the import."""
    lines = _why(error) + _field("at", raised.place_of(error, code, None))
    frame = raised.call_in_engine(error, code)
    exercise = None if frame is None else code.chapter.exercise_of(frame.f_code.co_qualname)
    if frame is None or exercise is None:
        return lines
    small = f"minipaged check {exercise.number} has smaller cases; make those pass first"
    return [*_field("case", raised.case_in_engine(frame)), *lines, *_field("next", small)]


def _why(error: BaseException, remark: str = "") -> list[str]:
    """The line that says what was raised, or why the test was stopped."""
    if isinstance(error, StoppedError):
        return _field("stopped", f"{error}{remark}")
    return _field("raised", f"{raised.one_line(error)}{remark}")


def _field(label: str, text: str) -> list[str]:
    """The lines of one field; none if there is no text."""
    if not text:
        return []
    lines: list[str] = []
    for line in text.splitlines():
        # A drawing keeps its columns; prose is wrapped.
        lines += textwrap.wrap(line, _WIDTH) if len(line) > _WIDTH and label not in _AS_IT_IS else [line]
    first, *rest = lines or [""]
    blank = " " * (_LABEL_WIDTH + 2)
    return [f"  {label:<{_LABEL_WIDTH}}{first}", *(f"{blank}{line}".rstrip() for line in rest)]


def _to_read(code: Implementation) -> str:
    return folders.shown(folders.notebook_file(code.chapter))


def _smallest(error: BaseException) -> str:
    """The arguments of the smallest failing case, if hypothesis has found one."""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_SMALLEST):
            return _arguments(note[note.index("(") + 1 : note.rindex(")")])
    return ""


def _arguments(inside: str) -> str:
    """One line for each argument of hypothesis's call, without its comments and our fixtures."""
    arguments: list[str] = []
    for line in inside.splitlines():
        bare = line.partition("# ")[0].strip()  # hypothesis comments on arguments that do not matter
        if line.startswith("    ") and line[4:5].strip(" )]}"):  # a new argument begins here
            arguments.append(bare)
        elif arguments and bare:
            arguments[-1] += bare if arguments[-1].endswith("(") else f" {bare}"
    shown = [
        each.rstrip(",").replace("[ ", "[").replace(", )", ")").replace(", ]", "]") for each in arguments
    ]
    return "\n".join(each for each in shown if each and not each.startswith("code=<"))
