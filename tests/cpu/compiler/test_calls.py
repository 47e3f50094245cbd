"""Calls that are made in one go: in order, by all threads, and again in every run."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import pytest

from minipaged.cpu.compiler import threads
from minipaged.cpu.compiler.calls import Call, CallSequence
from minipaged.cpu.compiler.compiled import shared_work
from minipaged.cpu.compiler.instructions import as_array, pointer_to, take_part

SIZE = 5000


class AddArguments(ctypes.Structure):
    _fields_ = (("next_part", ctypes.c_int64), ("source", ctypes.c_int64), ("target", ctypes.c_int64))


@shared_work(AddArguments)
def double_and_count(pointer):
    """target[i] = 2 × source[-1 - i] + 1: so a part reads numbers that any thread has written."""
    a = as_array(pointer, 1)[0]
    source = as_array(pointer_to(a.source, "int64"), (SIZE,))
    target = as_array(pointer_to(a.target, "int64"), (SIZE,))
    while True:
        part = take_part(pointer)
        if part >= SIZE:
            break
        target[part] = 2 * source[SIZE - 1 - part] + 1


def chain(workspaces: list[np.ndarray], num_threads: int) -> list[Call]:
    return [
        Call(double_and_count, AddArguments(0, source.ctypes.data, target.ctypes.data), num_threads)
        for source, target in pairwise(workspaces)
    ]


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_each_call_finds_what_the_one_before_it_wrote(num_threads: int) -> None:
    workspaces = [np.full(SIZE, -1, np.int64) for _ in range(30)]
    sequence = CallSequence(chain(workspaces, num_threads))
    for beginning in (np.arange(SIZE), np.arange(SIZE)[::-1] * 7, np.zeros(SIZE, np.int64)):
        workspaces[0][:] = expected = beginning
        sequence.run()
        for workspace in workspaces[1:]:
            with np.errstate(over="ignore"):
                expected = 2 * expected[::-1] + 1
            assert (workspace == expected).all()
        for workspace in workspaces[1:]:
            workspace.fill(-1)


def test_what_a_call_wrote_into_its_arguments_can_be_read() -> None:
    workspaces = [np.zeros(SIZE, np.int64) for _ in range(3)]
    given = chain(workspaces, 2)
    sequence = CallSequence(given)
    assert [each.next_part for each in sequence.arguments] == [0, 0]
    for _ in range(2):
        sequence.run()
        assert all(each.next_part >= SIZE for each in sequence.arguments)
    assert [each.source for each in sequence.arguments] == [
        workspace.ctypes.data for workspace in workspaces[:-1]
    ]
    assert all(call.arguments.next_part == 0 for call in given), "they were copied"


def test_without_openmp_one_thread_makes_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torchs_threads", lambda: None)
    workspaces = [np.ones(SIZE, np.int64) for _ in range(3)]
    CallSequence(chain(workspaces, 4)).run()
    assert (workspaces[1] == 3).all()
    assert (workspaces[2] == 7).all()
