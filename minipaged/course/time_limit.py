"""Limits the time that a test takes, because the checked code may loop or wait for ever.

Time is wall-clock time, so sleeping counts. When the time is up, an error that no `except Exception` catches
interrupts the test. The error is raised again every second, because the test may catch it anyway. If that
does not help, a watchdog thread in C ends the process. This happens if C code holds the interpreter, or if
there are no signals, as on Windows. The results so far are in the journal, and the process that started this
one goes on with the remaining tests (`watched.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TextIO

SECONDS = "MINIPAGED_TEST_SECONDS"
"""The environment variable with a test's limit in seconds. 0 means no limit."""

_DEFAULT = 60
_AGAIN = 1.0
"""Seconds until an interruption is repeated."""


class StoppedError(BaseException):
    """A test did not finish. This is not an `Exception`, because code that catches those would go on.

    Args:
        why: the reason, in words.
        whole_file: whether the checked file itself did not finish while it was being read.
    """

    def __init__(self, why: str, *, whole_file: bool = False) -> None:
        super().__init__(why)
        self.whole_file = whole_file


@dataclass(frozen=True)
class LastResort:
    """How the process ends if the interruption does not help.

    Attributes:
        traces: an open file to which the watchdog writes the threads' stacks.
        before: called when the time is up, before the first interruption. It may record what is known.
    """

    traces: TextIO
    before: Callable[[StoppedError], None]


def default_seconds() -> str:
    """The default of `--test-seconds`, from the environment if it sets a limit."""
    return os.environ.get(SECONDS) or str(_DEFAULT)


def grace(seconds: float) -> float:
    """How many seconds after its limit a test's process is ended."""
    return min(5.0, max(1.0, seconds / 4))


def is_debugged() -> bool:
    """Whether a debugger traces this process. A user may then take hours over a line."""
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and newer
    return sys.gettrace() is not None or bool(monitoring and monitoring.get_tool(monitoring.DEBUGGER_ID))


class time_limit:  # noqa: N801 (reads as the statement that it is)
    """Raises `StoppedError` if the `with` block takes too long, even if the block catches the interruption.

    Args:
        seconds: the limit; 0 for no limit.
        last_resort: ends the process if the interruptions do not help. Without it, a block that catches every
            interruption goes on.
    """

    def __init__(self, seconds: float, last_resort: LastResort | None = None) -> None:
        self._seconds = seconds
        self._last_resort = last_resort
        self._signals = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
        self._old: object = None
        self._stopped: StoppedError | None = None

    def __enter__(self) -> None:
        if not self._seconds:
            return
        if self._signals:
            self._old = signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN)
        if self._last_resort is not None:
            end = self._seconds + grace(self._seconds)
            faulthandler.dump_traceback_later(end, exit=True, file=self._last_resort.traces)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, *__: object) -> None:
        if not self._seconds:
            return
        forget_time_limit()
        if self._signals:
            signal.signal(signal.SIGALRM, self._old)  # pyright: ignore[reportArgumentType]
        if self._stopped is not None and not isinstance(error, StoppedError):
            raise self._stopped

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._stopped is None:
            self._stopped = took_too_long(self._seconds).with_traceback(_traceback_to(frame))
            if self._last_resort is not None:
                # A signal handler may run in the middle of any code, so it must raise only the interruption.
                with contextlib.suppress(Exception):
                    self._last_resort.before(self._stopped)
        raise took_too_long(self._seconds)


def took_too_long(seconds: float) -> StoppedError:
    """The error of a test whose time is up."""
    return StoppedError(f"it had not ended after {seconds:g} {'second' if seconds == 1 else 'seconds'}")


def forget_time_limit() -> None:
    """Remove the limit of the running test, because a user looks at it in a debugger."""
    if hasattr(signal, "SIGALRM"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()


def _traceback_to(frame: FrameType | None) -> TracebackType | None:
    """A traceback from the outermost frame to this one, as if this frame had raised."""
    traceback = None
    while frame is not None:
        traceback = TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return traceback
