"""Which threads may call an engine: one at a time, and not in a forked process.

A step reads and changes the same tables from its beginning to its end. A second thread that adds, aborts or
steps meanwhile would find them half changed. Its call is refused at once and does not wait, because the
caller has to decide which of two calls comes first.
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
        """Whether the calling thread is inside."""
        return self._inside.get(_THREAD) == threading.get_ident()

    def enter(self) -> None:
        """Let the calling thread in.

        Raises:
            EngineBusyError: another thread is inside.
            ForkedProcessError: the engine was made before this process was forked.
        """
        if os.getpid() != self._process:
            _refuse_to_wait_for_lost_threads()
        # Read and set in one operation, so that no other thread can come between.
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
    """Decorator for methods of an engine: only one thread at a time can be in any of them.

    That thread can call further decorated methods, since code that a step calls may call the engine. After
    Ctrl-C or an exception at any point, the engine is free for other threads again.
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
            one_thread.leave()  # Ctrl-C may have come just before the `leave` above

    return alone


@functools.cache
def _process_of_the_first_engine() -> int:
    """The id of the process that first called this function.

    The result is cached. So a process that is forked from the first one also gets the id of the first one.
    """
    return os.getpid()


def _refuse_to_wait_for_lost_threads() -> None:
    """In a forked process, refuse to compute with more than one thread.

    A fork copies only the calling thread. But OpenMP still gives the other threads their part of the work,
    and waits for these threads for ever. With one thread, it does not wait.
    """
    if torch.get_num_threads() > 1:
        raise ForkedProcessError(
            "this process was forked from one that has made an engine, whose OpenMP threads do not exist "
            "here: a step would wait for them for ever. Start processes with "
            "multiprocessing.get_context('spawn') and make the LLM in them; or make none before the fork; or "
            "call torch.set_num_threads(1) here"
        )
