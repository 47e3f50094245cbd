"""Asking before something that cannot be taken back."""

from __future__ import annotations

import sys

from minipaged.errors import CourseError


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether the answer is yes.

    Args:
        question: is asked in the terminal.
        yes: the answer is known, and nothing is asked.

    Raises:
        CourseError: nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CourseError(f"{question} There is nobody to ask here: say --yes")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes")
