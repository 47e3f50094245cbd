"""Fewer threads for a while: only in this thread and this block, and never against the user's choice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from minipaged.cpu.compiler import thread_limit
from minipaged.cpu.compiler.thread_limit import VARIABLES, at_most_threads, user_gave_number
from minipaged.cpu.compiler.threads import function_of_torch, threads_for
from tests.torch_threads import needs_openmp, torch_threads, torchs_own_threads

pytestmark = needs_openmp


def test_within_the_block_and_afterwards() -> None:
    with torchs_own_threads(3):
        with at_most_threads(2):
            assert torch.get_num_threads() == threads_for(1e6) == 2
            assert "mkl_get_max_threads() : 3" not in torch.__config__.parallel_info()
            with at_most_threads(1):
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 3
        with pytest.raises(ValueError, match="x"), at_most_threads(1):
            raise ValueError("x")
        assert torch.get_num_threads() == 3
        assert not user_gave_number()


def test_never_more_than_there_were() -> None:
    with torchs_own_threads(2), at_most_threads(5):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_number_in_the_environment_stays(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with torchs_own_threads(2):
        monkeypatch.setenv(variable, "2")
        with at_most_threads(1):
            assert torch.get_num_threads() == 2
        monkeypatch.setenv(variable, "")
        with at_most_threads(1):
            assert torch.get_num_threads() == 1


def test_a_number_given_to_torch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with torch_threads(2):
        assert user_gave_number()
        with at_most_threads(1):
            assert torch.get_num_threads() == 2
        assert user_gave_number(), "asking changes nothing"


def functions_without(*missing: str) -> Callable[[str], object]:
    return lambda name: None if name in missing else function_of_torch(name)


def test_without_mkl_another_number_than_that_of_processors_is_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processors = function_of_torch("omp_get_num_procs")
    assert processors is not None
    monkeypatch.setattr(thread_limit, "function_of_torch", functions_without("MKL_Set_Num_Threads_Local"))
    with torchs_own_threads(processors()):
        assert not user_gave_number()
    with torchs_own_threads(processors() + 1):
        assert user_gave_number()


def test_without_openmp_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limit, "function_of_torch", functions_without("omp_set_num_threads"))
    with torchs_own_threads(2), at_most_threads(1):
        assert torch.get_num_threads() == 2


def test_other_threads_have_the_numbers_that_they_had() -> None:
    with torchs_own_threads(3):
        inside, looked = threading.Event(), threading.Event()
        seen: list[int] = []

        def other() -> None:
            with torchs_own_threads(2):
                inside.wait(60)
                seen.append(torch.get_num_threads())
                with at_most_threads(1):
                    looked.set()

        thread = threading.Thread(target=other)
        thread.start()
        with at_most_threads(1):
            inside.set()
            looked.wait(60)
            assert torch.get_num_threads() == 1
        thread.join()
        assert seen == [2]
        assert torch.get_num_threads() == 3


THREADS_THAT_BEGIN = """
import threading, torch
from minipaged.cpu.compiler.thread_limit import at_most_threads
own = torch.get_num_threads()
with at_most_threads(1):
    seen = [torch.get_num_threads()]
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [1, own], (seen, own)
assert torch.get_num_threads() == own
"""


def test_a_thread_that_begins_meanwhile_has_pytorchs_own_number() -> None:
    """`torch.set_num_threads` would fail here. The process is one in which PyTorch chose the number."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", THREADS_THAT_BEGIN],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
