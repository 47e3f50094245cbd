"""Asks for confirmation before a step that cannot be undone."""

from __future__ import annotations

import sys

from minipaged.errors import CourseError


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether the answer is yes.

    Args:
        question: the question to ask in the terminal.
        yes: take the answer as yes, and do not ask.

    Raises:
        CourseError: stdin is not a terminal, so the question cannot be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CourseError(f"{question} This is not a terminal, so the question cannot be asked: add --yes")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    return answer.strip().lower() in ("y", "yes")
