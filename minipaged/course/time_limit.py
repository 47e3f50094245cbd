"""A limit for the time that a test may compute: for loops without an end."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class TookTooLongError(Exception):
    """A test that did not end."""


class time_limit:  # noqa: N801 (reads as the statement that it is)
    """Raise `TookTooLongError` in the main thread after some seconds of computing, so that other work on
    the machine does not matter; nothing where there are no signals."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._works = hasattr(signal, "SIGPROF") and threading.current_thread() is threading.main_thread()
        self._old: object = None

    def __enter__(self) -> None:
        if self._works:
            self._old = signal.signal(signal.SIGPROF, self._stop)
            signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        if self._works:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._old)  # pyright: ignore[reportArgumentType]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"it had not ended after {self._seconds} seconds of computing")
