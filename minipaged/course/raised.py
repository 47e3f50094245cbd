"""Describe a call that raised: the call, the right answer, the state, and the reader's own line."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType, ModuleType

from minipaged.course import folders
from minipaged.course.calls import Call, Made, answer
from minipaged.course.chapter import Chapter
from minipaged.course.drawing import draw_tables
from minipaged.course.expect import show
from minipaged.course.implementation import Implementation

_MOST_CHARACTERS = 60
"""The most characters that an argument in a call may have. A longer one is shown as a line of the state."""

_MOST_LINES = 8
"""The most lines that are shown of an argument that is a list of long values."""


def one_line(error: BaseException) -> str:
    """An error's class and the first line of its message, with paths as messages show them."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {said}".rstrip(": ").replace(f"{folders.root()}/", "")
    return text if len(text) <= 300 else f"{text[:300]}…"


def place_of(error: BaseException, code: Implementation, call: Call | None) -> str:
    """Where an error arose.

    This is the innermost line of the checked code in the traceback. If there is none, it is the first line of
    the function that could not be called. If there is no such function either, it is the line of the test.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [(each.filename, each.lineno or 0) for each in frames if each.filename == str(code.path)]
    if not ours and call is not None and not call.has_returned and not isinstance(call.function, type):
        begins = inspect.unwrap(call.function).__code__  # pyright: ignore[reportFunctionMemberAccess]
        ours = [(begins.co_filename, begins.co_firstlineno)]
    chapters = str(folders.root() / "chapters")
    tests = [(each.filename, each.lineno or 0) for each in frames if each.filename.startswith(chapters)]
    if not (ours or tests):
        return ""
    return line_at(*(ours or tests)[-1])


def line_at(filename: str, number: int) -> str:
    """File, line number and the text of the line."""
    linecache.checkcache(filename)
    text = linecache.getline(filename, number).strip()
    return f"{folders.shown(Path(filename))}:{number}{f': {text}' if text else ''}"


def case_of(call: Call) -> str:
    """The call as the reader can type it. An argument that is not a literal appears by its name."""
    named = _by_name(call)
    made = next((each for each in named.values() if isinstance(each, Made)), None)
    class_name, _, method = call.name.rpartition(".")
    if class_name and made is not None:
        given = [_typed(value, name) for name, value in list(named.items())[1:]]
        text = f"len() of {made}" if method == "__len__" else f"{made}.{method}({', '.join(given)})"
    else:
        text = f"{call.name}({', '.join(_typed(value, name) for name, value in named.items())})"
    before = [] if made is None else [each for each in made.calls if not each[0].startswith("__")]
    if not before:
        return text
    steps = ", ".join(f"{name}({', '.join(map(repr, args))})" for name, args in before)
    return f"{text}, after {steps}"


def state_of(chapter: Chapter, call: Call) -> str:
    """The arguments that the call does not show, and a drawing if the chapter has one."""
    named = _by_name(call)
    drawn = _drawn(chapter, call.name, named)
    hidden = {
        name: value
        for name, value in named.items()
        if not (isinstance(value, Made) or _is_pool(value) or _typed(value, name) != name)
        and not (drawn and re.search(rf"^{name}\b", drawn, re.MULTILINE))
    }
    width = max([0, *(len(name) for name in hidden)])
    lines = [f"{name:<{width}}  {_described(value)}" for name, value in hidden.items()]
    return "\n".join(part for part in ("\n".join(lines), drawn) if part)


def expected_of(call: Call, solution: ModuleType) -> str:
    """What the solution returns, and the arguments that it changes; empty if the call cannot be repeated."""
    before = list(_by_name(call).items())
    try:
        result, args, kwargs = answer(call, solution)
    except Exception as error:
        return f"it raises {type(error).__name__}"
    after = _by_name(Call(call.function, call.name, args, kwargs))
    changed = [
        f"{name} is then {_described(after[name])}"
        for name, value in before
        if isinstance(value, list) and name in after and _described(after[name]) != _described(value)
    ]
    if isinstance(call.function, type):
        return "an object"
    if result is None and (changed or not call.has_returned):
        return "; ".join(changed) or "it returns nothing: it works in place"
    return "; ".join([_described(result), *changed])


def rule_of(function: Callable[..., object]) -> str:
    """The purpose of a function: the first paragraph of its docstring."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def call_in_engine(error: BaseException, code: Implementation) -> FrameType | None:
    """The first frame of the checked code in the error's traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((frame for frame in frames if frame.f_code.co_filename == str(code.path)), None)


def case_in_engine(frame: FrameType) -> str:
    """The engine's call, with the arguments as they were when it raised."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    given = [_typed(frame.f_locals[name], name) for name in names if name in frame.f_locals]
    return (
        f"the engine calls {frame.f_code.co_qualname}({', '.join(each for each in given if each != 'self')})"
    )


def _by_name(call: Call) -> dict[str, object]:
    """The arguments by their parameters' names, or by numbers if they do not fit the parameters."""
    try:
        return dict(inspect.signature(call.function).bind(*call.args, **call.kwargs).arguments)
    except (TypeError, ValueError):
        return {f"argument {i}": value for i, value in enumerate(call.args, 1)} | dict(call.kwargs)


def _typed(value: object, name: str) -> str:
    """A value as the reader can type it, or its name if the value is too long or cannot be typed."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        is_array = type(value).__module__ == "numpy"
        text = f"np.array({value.tolist()}, dtype=np.{value.dtype})" if is_array else ""  # pyright: ignore[reportAttributeAccessIssue]
    else:
        text = "" if _is_pool(value) else repr(value)
    typed = bool(text) and len(text) <= _MOST_CHARACTERS and not re.search(r"<|tensor\(", text)
    return text if typed else name


def _described(value: object) -> str:
    """A short description of a result or of a long argument; a tensor is described by its shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = list(value.shape), str(value.dtype).removeprefix("torch.")  # pyright: ignore[reportAttributeAccessIssue]
        values = f": {show(value.tolist())}" if len(shape) == 1 and shape[0] <= 16 else ""  # pyright: ignore[reportAttributeAccessIssue]
        return f"{dtype} of shape {shape}{values}"
    if isinstance(value, tuple) and any(hasattr(each, "dtype") for each in value):
        return f"({', '.join(map(_described, value))})"
    if isinstance(value, list) and len(value) > 20:
        return f"{len(value):,} of them: {show(value[:8]).rstrip(']')}, …]"
    text = re.sub(r" at 0x[0-9a-f]+", "", show(value))
    if is_dataclass(value) and not isinstance(value, type) and len(text) > 2 * _MOST_CHARACTERS:
        return "\n".join(f"{each.name}: {_described(getattr(value, each.name))}" for each in fields(value))
    if isinstance(value, list) and len(text) > 2 * _MOST_CHARACTERS:
        return "\n".join(show(each) for each in value[:_MOST_LINES]) + ("\n…" if value[_MOST_LINES:] else "")
    return text


def _is_pool(value: object) -> bool:
    return hasattr(value, "ref_cnt") and hasattr(value, "free_queue")


def _drawn(chapter: Chapter, name: str, arguments: Mapping[str, object]) -> str:
    """The chapter's own drawing (`draw_call` in its `drawn_calls.py`), or else block tables and counts."""
    module = f"minipaged.course.ch{chapter.number:02}.drawn_calls"
    if importlib.util.find_spec(module) is not None:
        return importlib.import_module(module).draw_call(name, arguments)
    tables: dict[str, list[int]] = {}
    for key, value in arguments.items():
        if "table" in key and isinstance(value, list):
            several = bool(value) and isinstance(value[0], list)
            tables |= {f"{key}[{i}]": each for i, each in enumerate(value)} if several else {key: value}
    pool = next((value for value in arguments.values() if _is_pool(value)), None)
    counts = arguments.get("ref_cnt") if pool is None else pool.ref_cnt  # pyright: ignore[reportAttributeAccessIssue]
    if not tables or not isinstance(counts, list):
        return ""
    free = None if pool is None else list(pool.free_queue)  # pyright: ignore[reportAttributeAccessIssue]
    # The counts get no marks, since tables that are not arguments of this call may name the blocks, too.
    held = [block for block, count in enumerate(counts) if block and count]
    return draw_tables({**tables, "block": held, "count": [counts[block] for block in held]}, free=free)
