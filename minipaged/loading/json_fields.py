"""Typed access to a model's JSON files, with errors that name the field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from minipaged.errors import UnsupportedModelError

_T = TypeVar("_T")


def read_json(path: Path) -> dict[str, object]:
    """Read the JSON object in a file.

    Raises:
        UnsupportedModelError: the file is missing, is not JSON, or does not contain an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    # Deeply nested JSON raises a RecursionError.
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UnsupportedModelError(f"{path} must hold a JSON object, not {type(content).__name__}.")
    return content


class Fields:
    """The fields of a JSON object.

    Args:
        values: the fields, as read from JSON.
        defaults: values for missing fields. A field that is `null` is not missing.

    All methods but `get` raise `UnsupportedModelError` for a value of the wrong type. `whole`, `number`,
    `flag` and `text` also raise it for a value that is `null`, or missing without a default.
    """

    def __init__(self, values: Mapping[str, object], defaults: Mapping[str, object] | None = None) -> None:
        self._values = values
        self._defaults = defaults or {}

    def get(self, name: str) -> object:
        """The value, unchecked, or `None`."""
        return self._values.get(name, self._defaults.get(name))

    def names(self) -> list[str]:
        """The names of the fields that are present and not `null`, in the file's order."""
        return [name for name, value in self._values.items() if value is not None]

    def optional_whole(self, name: str) -> int | None:
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise _wrong(name, value, "a whole number")
        return value

    def whole(self, name: str) -> int:
        return _present(name, self.optional_whole(name))

    def optional_number(self, name: str) -> float | None:
        """The value as a finite float, or `None` if the field is missing."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise _wrong(name, value, "a number")
        return number

    def number(self, name: str) -> float:
        return _present(name, self.optional_number(name))

    def flag(self, name: str) -> bool:
        value = _present(name, self.get(name))
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str:
        value = _present(name, self.get(name))
        if not isinstance(value, str):
            raise _wrong(name, value, "a text")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of strings; empty if the field is missing or `null`."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _wrong(name, value, "a list of texts")
        return value

    def mapping(self, name: str) -> Mapping[str, object]:
        """The object; empty if the field is missing or `null`."""
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise _wrong(name, value, "an object")
        return value


def _present(name: str, value: _T | None) -> _T:
    if value is None:
        raise UnsupportedModelError(f"The model's configuration does not have {name}.")
    return value


def _wrong(name: str, value: object, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"The model's configuration has {name}={value!r:.200}: not {expected}.")
