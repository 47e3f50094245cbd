"""Checking one parameter: each function returns the value as a plain Python type, or refuses it.

A refusal is a `SamplingParamsError` that names the field, its value and what is possible.
"""

from __future__ import annotations

import math
import reprlib
from numbers import Integral, Real
from typing import NoReturn

from minipaged.errors import SamplingParamsError


def refuse(field: str, value: object, possible: str) -> NoReturn:
    try:
        shown = reprlib.repr(value)
    except ValueError:  # Python refuses to print an integer of more than 4300 digits
        shown = "(a very large number)"
    raise SamplingParamsError(f"{field}={shown} is not possible: {possible}")


def check_integer(field: str, value: object, low: int, high: int | None, note: str = "") -> int:
    span = f"from {low} to {high}" if high is not None else f"{low} or more"
    possible = f"it must be an integer, {span}" + (f" ({note})" if note else "")
    # To Python, bool is a kind of int. But True is not a count.
    if isinstance(value, bool) or not isinstance(value, Integral):
        refuse(field, value, possible)
    number = int(value)
    if number < low or (high is not None and number > high):
        refuse(field, value, possible)
    return number


def check_optional_integer(field: str, value: object, low: int, high: int | None) -> int | None:
    return None if value is None else check_integer(field, value, low, high, "or None")


def check_number(
    field: str,
    value: object,
    span: str,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    high: float = math.inf,
) -> float:
    possible = f"it must be a finite number, {span}"
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(field, value, possible)
    try:
        number = float(value)
    except OverflowError:
        refuse(field, value, possible)
    # Every comparison with NaN is false, so NaN needs a check of its own.
    if not math.isfinite(number) or number < low or number <= above or number > high:
        refuse(field, value, possible)
    return number


def check_flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        refuse(field, value, "it must be True or False")
    return value
