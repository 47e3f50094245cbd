"""Ctrl-C within `interruptible`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from minipaged.cli.interrupt import interruptible


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Iterator[None]:
    """Set Python's own handler: a shell starts background processes with SIGINT ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


def test_the_first_is_noted_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_is_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="x"), interruptible():
        raise ValueError("x")
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_is_left_alone() -> None:
    seen: list[bool] = []

    def work() -> None:
        with interruptible() as interrupted:
            seen.append(interrupted())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
