"""The output streams: results go to stdout, everything else goes to stderr."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """A console for stdout that prints text unchanged. Brackets in a model's text are not markup."""
    return _console(sys.stdout)


def stderr_console() -> Console:
    """A console for stderr that prints text unchanged."""
    return _console(sys.stderr)


def remark(text: str) -> None:
    """Print a line on stderr. It is dim in a terminal, and not wrapped."""
    stderr_console().print(text, style="dim", soft_wrap=True)


def _console(stream: object) -> Console:
    from rich.console import Console

    if isinstance(stream, io.TextIOWrapper):
        # Show `?` instead of failing on characters that the stream's encoding lacks.
        stream.reconfigure(errors="replace")
    return Console(stderr=stream is sys.stderr, markup=False, highlight=False, emoji=False)
