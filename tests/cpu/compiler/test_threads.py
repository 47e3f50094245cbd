"""Work on several threads: each part is done once, with OpenMP and without it."""

from __future__ import annotations

import ctypes
import sys
import threading

import numpy as np
import pytest

from minipaged.cpu.compiler import threads
from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_to, take_part
from minipaged.cpu.compiler.threads import run_on_threads, threads_for
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


def test_without_openmp_one_thread_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torchs_threads", lambda: None)
    counts = np.zeros(9, np.int64)
    run_on_threads(count_parts, CountArguments(0, 9, counts.ctypes.data), 4)
    assert (counts == 1).all()


def test_little_work_is_for_one_thread_and_no_work_for_more_than_torch_has() -> None:
    with torch_threads(3):
        assert threads_for(0.1) == 1
        assert threads_for(1e6) == 3
