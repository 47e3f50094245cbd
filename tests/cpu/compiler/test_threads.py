"""Work on several threads: each part is done once, with OpenMP and without it."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minipaged.cpu.compiler import threads
from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_to, take_part
from minipaged.cpu.compiler.threads import barrier_address, run_on_threads, threads_for
from tests.torch_threads import torch_threads


class CountArguments(ctypes.Structure):
    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("num_parts", ctypes.c_int64),
        ("counts", ctypes.c_int64),
    )


@shared_work(CountArguments)
def count_parts(pointer):
    a = as_array(pointer, 1)[0]
    counts = as_array(pointer_to(a.counts, "int64"), (a.num_parts,))
    while True:
        part = take_part(pointer)
        if part >= a.num_parts:
            break
        counts[part] += 1


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("num_parts", [0, 1, 7, 10_000])
def test_each_part_is_done_once(num_threads: int, num_parts: int) -> None:
    counts = np.zeros(num_parts, np.int64)
    run_on_threads(count_parts, CountArguments(0, num_parts, counts.ctypes.data), num_threads)
    assert (counts == 1).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere OpenMP may lack this entry point")
def test_there_are_several_threads() -> None:
    seen: set[int] = set()
    both = threading.Barrier(2)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def see_this_thread(_: int) -> None:
        seen.add(threading.get_ident())
        both.wait(timeout=60)

    class Work:
        address = ctypes.cast(see_this_thread, ctypes.c_void_p).value or 0
        call = see_this_thread

    run_on_threads(Work(), CountArguments(), 2)
    assert len(seen) == 2


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Nothing that a test finds is kept."""
    found = (threads.torchs_threads, threads.function_of_torch, threads._barrier)
    for each in found:
        each.cache_clear()
    yield
    for each in found:
        each.cache_clear()


@pytest.mark.usefixtures("forgetful")
def test_without_openmp_one_thread_does_all_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "function_of_torch", lambda name: None)
    counts = np.zeros(9, np.int64)
    with torch_threads(3):
        for _ in range(2):
            run_on_threads(count_parts, CountArguments(0, 9, counts.ctypes.data), 3)
    assert (counts == 2).all()
    assert barrier_address(3) == 0
    [warning] = caplog.messages
    assert "the CPU's compiled loops run on one thread" in warning


class MicrosoftsOpenMP:
    """Does what the functions do that a compiler of Microsoft's calls, with Python's threads.

    Attributes:
        forks: the number of threads of each call of `_vcomp_fork`.
    """

    def __init__(self) -> None:
        self.forks: list[int] = []
        self._next = 1

        @ctypes.CFUNCTYPE(None, ctypes.c_int)
        def set_num_threads(number: int) -> None:
            self._next = number

        @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        def fork(condition: int, num_arguments: int, function: int, argument: int) -> None:
            assert (condition, num_arguments) == (1, 1)
            self.forks.append(self._next)
            work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
            several = [threading.Thread(target=work, args=(argument,)) for _ in range(self._next)]
            for each in several:
                each.start()
            for each in several:
                each.join()

        @ctypes.CFUNCTYPE(None)
        def barrier() -> None: ...

        self._functions = {
            "_vcomp_set_num_threads": set_num_threads,
            "_vcomp_fork": fork,
            "_vcomp_barrier": barrier,
        }

    def __call__(self, path: str) -> MicrosoftsOpenMP:
        if Path(path).name != "libiomp5md.dll":
            raise OSError
        return self

    def __getattr__(self, name: str) -> object:
        if name not in self._functions:
            raise AttributeError
        return self._functions[name]


@pytest.mark.usefixtures("forgetful")
def test_on_windows_the_threads_are_those_of_the_library_that_pytorch_brings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = MicrosoftsOpenMP()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", library)
    counts = np.zeros(10_000, np.int64)
    run_on_threads(count_parts, CountArguments(0, 10_000, counts.ctypes.data), 3)
    assert (counts == 1).all()
    assert library.forks == [3]
    assert barrier_address(3) != 0
    assert barrier_address(1) == 0


def test_little_work_is_for_one_thread_and_no_work_for_more_than_torch_has() -> None:
    with torch_threads(3):
        assert threads_for(0.1) == 1
        assert threads_for(1e6) == 3
