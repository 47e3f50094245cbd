"""Ctrl-C as a flag that is checked between two steps, instead of an exception in the middle of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Within the `with` block, the first Ctrl-C only sets a flag. A second Ctrl-C interrupts as usual.

    Yields:
        A function that returns whether Ctrl-C was pressed. Outside of the main thread it always returns
        False, since Python handles signals only in the main thread.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(signum: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
