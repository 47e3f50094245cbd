"""Who may call an engine: one thread at a time, in a process that can compute.

A step reads and changes the same tables from its beginning to its end. A second thread that adds, aborts or
steps meanwhile would find them half changed. It is refused at once, and not kept waiting: which of two calls
comes first is for the caller to say.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeVar

import torch

from minipaged.errors import EngineBusyError, ForkedProcessError

_THREAD: Literal["thread"] = "thread"


class OneThread:
    """Lets one thread at a time into an engine; see `by_one_thread`.

    Raises:
        ForkedProcessError: the process was forked from one that has made an engine.
    """

    def __init__(self) -> None:
        self._inside: dict[Literal["thread"], int] = {}
        self._process = os.getpid()
        if _process_of_the_first_engine() != self._process:
            _refuse_to_wait_for_lost_threads()

    def is_inside(self) -> bool:
        """Whether it is the calling thread that is inside."""
        return self._inside.get(_THREAD) == threading.get_ident()

    def enter(self) -> None:
        """Take the calling thread in.

        Raises:
            EngineBusyError: another one is inside.
            ForkedProcessError: the engine was made before this process was forked.
        """
        if os.getpid() != self._process:
            _refuse_to_wait_for_lost_threads()
        # Looked up and set in one go, so that no other thread comes between.
        inside = self._inside.setdefault(_THREAD, threading.get_ident())
        if inside != threading.get_ident():
            names = [thread.name for thread in threading.enumerate() if thread.ident == inside]
            raise EngineBusyError(
                f"the engine is in use by another thread ({', '.join(names) or inside}), and serves one at a "
                "time: give all prompts to one call of generate, or give each thread an engine of its own "
                "(engines may share a model: LLMEngine(config, engine.model))"
            )

    def leave(self) -> None:
        """Let the calling thread out, if it is inside."""
        if self.is_inside():
            self._inside.clear()


class _Guarded(Protocol):
    @property
    def one_thread(self) -> OneThread: ...


_E = TypeVar("_E", bound=_Guarded)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def by_one_thread(method: Callable[Concatenate[_E, _P], _R]) -> Callable[Concatenate[_E, _P], _R]:
    """For a method during which no other thread may call such a method of the same engine.

    The thread itself may: what a step calls can call the engine. Neither Ctrl-C nor an exception, wherever it
    comes, leaves the engine in use.
    """

    @functools.wraps(method)
    def alone(self: _E, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        one_thread = self.one_thread
        if one_thread.is_inside():
            return method(self, *args, **kwargs)
        try:
            try:
                one_thread.enter()
                return method(self, *args, **kwargs)
            finally:
                one_thread.leave()
        finally:
            one_thread.leave()  # Ctrl-C may have come just before the first

    return alone


@functools.cache
def _process_of_the_first_engine() -> int:
    """The id of the process that called this first. A process that is forked from it knows it as well."""
    return os.getpid()


def _refuse_to_wait_for_lost_threads() -> None:
    """A fork copies the calling thread alone. OpenMP counts on the others all the same: it gives them their
    part of the work, and waits for ever. With one thread there is nothing to wait for."""
    if torch.get_num_threads() > 1:
        raise ForkedProcessError(
            "this process was forked from one that has made an engine, whose OpenMP threads do not exist "
            "here: a step would wait for them for ever. Start processes with "
            "multiprocessing.get_context('spawn') and make the LLM in them; or make none before the fork; or "
            "call torch.set_num_threads(1) here"
        )
