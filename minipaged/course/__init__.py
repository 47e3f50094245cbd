"""The course: its exercises, how they are checked, and how its files are generated. See README.md here.

In a notebook:

>>> from minipaged.course import check, code >>> mine = code(1)        # the reader's functions; the
solution's for those not written yet
>>> check("1.1")          # the same as `minipaged check 1.1`, drawn
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from minipaged.course.not_yet import NotYet

if TYPE_CHECKING:
    from minipaged.course.notebook import bug, check, code, my_parts

_HOME = dict.fromkeys(("bug", "check", "code", "my_parts"), "minipaged.course.notebook")

__all__ = ["NotYet", "bug", "check", "code", "my_parts"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'minipaged.course' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
