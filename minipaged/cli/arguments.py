"""Types for argparse. Each turns text from the command line into a value, or raises a one-line error."""

from __future__ import annotations

import argparse
from pathlib import Path

from minipaged.errors import ConfigError
from minipaged.view.byte_amounts import parse_memory


def memory_amount(text: str) -> int:
    """Bytes, from `24GiB`, `24GB`, `800M` or a plain number."""
    try:
        return parse_memory(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_int(text: str) -> int:
    """An integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return value


def share(text: str) -> float:
    """A number above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and at most 1")
    return value


def new_file(text: str) -> Path:
    """The path of a file in an existing folder. It is checked now, not after minutes of work."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    return path
