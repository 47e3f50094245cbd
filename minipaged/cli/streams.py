"""What goes where: results to stdout, everything else to stderr."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """A console that takes text as it is: brackets in a model's text are no markup."""
    return _console(sys.stdout)


def stderr_console() -> Console:
    """The same for stderr."""
    return _console(sys.stderr)


def remark(text: str) -> None:
    """A line on stderr beside the results, dim in a terminal. It is not wrapped."""
    stderr_console().print(text, style="dim", soft_wrap=True)


def _console(stream: object) -> Console:
    from rich.console import Console

    if isinstance(stream, io.TextIOWrapper):
        # Show `?` for what the stream's encoding does not have, rather than fail.
        stream.reconfigure(errors="replace")
    return Console(stderr=stream is sys.stderr, markup=False, highlight=False, emoji=False)
