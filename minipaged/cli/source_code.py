"""Prints Python source: with colours in a terminal, as plain text elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_source(console: Console, text: str) -> None:
    """Print some lines of Python."""
    from rich.syntax import Syntax

    if console.is_terminal:
        console.print(Syntax(text, "python", background_color="default", word_wrap=True))
    else:
        console.print(text, soft_wrap=True)
