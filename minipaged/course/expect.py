"""Assertions for a chapter's tests, with messages for a wrong answer.

A bare `assert` says only that two values differ. These assertions show the case, the expected value, the
actual value, the broken rule and, if given, a drawing of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_NOTHING = object()


class Wrong(AssertionError):  # noqa: N818 (named for the state that it means)
    """A wrong answer.

    Attributes:
        case: the question, in words or as a call.
        expected, got: the expected and the actual value, as text.
        rule: the rule that is broken, or what to look at.
        state: a drawing of the state; see `minipaged/course/drawing.py`.
    """

    def __init__(
        self, *, case: str, expected: str = "", got: str = "", rule: str = "", state: str = ""
    ) -> None:
        super().__init__(case)
        self.case = case
        self.expected = expected
        self.got = got
        self.rule = rule
        self.state = state


def expect_equal(got: object, expected: object, *, case: str, rule: str = "", state: str = "") -> None:
    """Check that two values are equal and of the same kind. A float in place of an int is wrong.

    Raises:
        Wrong: they differ.
    """
    if got != expected or _kind(got) != _kind(expected):
        shown_got, shown_expected = show(got), show(expected)
        if shown_got == shown_expected or (got == expected and _kind(got) != _kind(expected)):
            shown_got += f" ({_kind(got)})"
            shown_expected += f" ({_kind(expected)})"
        raise Wrong(case=case, expected=shown_expected, got=shown_got, rule=rule, state=state)


def expect_close(
    got: float, expected: float, *, case: str, within: float = 1e-9, rule: str = "", state: str = ""
) -> None:
    """Check that two numbers differ by at most `within`.

    Raises:
        Wrong: they differ by more, or `got` is not a number.
    """
    is_number = isinstance(got, int | float) and not isinstance(got, bool)
    if not is_number or not abs(got - expected) <= within:
        raise Wrong(case=case, expected=show(expected), got=show(got), rule=rule, state=state)


def expect(
    holds: bool, *, case: str, rule: str, expected: str = "", got: object = _NOTHING, state: str = ""
) -> None:
    """Check that a condition is true. The message shows `got` as a value, or unchanged if it is a string.

    Raises:
        Wrong: it is false.
    """
    if not holds:
        shown_got = "" if got is _NOTHING else got if isinstance(got, str) else show(got)
        raise Wrong(case=case, expected=expected, got=shown_got, rule=rule, state=state)


@contextmanager
def expect_error(error: type[Exception], *, case: str, rule: str = "") -> Iterator[None]:
    """Check that the block raises this error.

    Raises:
        Wrong: the block does not raise. Other errors pass through.
    """
    try:
        yield
    except error:
        return
    raise Wrong(case=case, expected=f"{error.__name__}", got="no error", rule=rule)


def show(value: object) -> str:
    """A value in the form for messages: shortened, and with thousands separators in integers."""
    if isinstance(value, bool) or value is None:
        text = repr(value)
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.6g}"
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inside = ", ".join(str(each) if isinstance(each, int) else show(each) for each in value)
        text = f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    else:
        text = repr(value)
    return text if len(text) <= 600 else f"{text[:600]}…"


def kind_of(value: object) -> str:
    """The kind of a value, for messages. An array's kind includes its dtype, and a tuple's its length."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        is_numpy = type(value).__module__ == "numpy"
        return f"a {'NumPy array' if is_numpy else 'tensor'} of {str(dtype).removeprefix('torch.')}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"{type(value).__name__}: {show(value)}"


def _kind(value: object) -> str:
    """A value's type with the types of its elements. Values of different types may be equal for `==`."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        inner = sorted({_kind(each) for each in value})
        return f"{type(value).__name__} of {' and '.join(inner) or 'nothing'}"
    return type(value).__name__
