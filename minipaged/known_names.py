"""Errors for arguments with unknown names. The message says which argument was probably meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

from minipaged.errors import MinipagedError

_T = TypeVar("_T")


def refuses_unknown_names(kind: str, error: type[MinipagedError]) -> Callable[[type[_T]], type[_T]]:
    """Class decorator: an argument with an unknown name raises `error`, and not Python's `TypeError`.

    Args:
        kind: the word for an argument in the message.
        error: the class of the error to raise.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        known = list(inspect.signature(cls).parameters)
        make = cls.__init__

        @functools.wraps(make)
        def checked(self: _T, /, *args: object, **values: object) -> None:
            unknown = [_with_nearest(name, known) for name in values if name not in known]
            if unknown:
                raise error(f"no such {kind}: {', '.join(unknown)}. There are {', '.join(known)}")
            make(self, *args, **values)

        setattr(cls, "__init__", checked)  # noqa: B010 (type checkers still see the class's `__init__`)
        return cls

    return decorate


def _with_nearest(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"{name} (did you mean {nearest[0]}?)" if nearest else name
