"""The loops compile for ARM's servers and for Apple's processors: nothing in them is x86's alone.

This says nothing about how they run there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpu.compiler import cross_compile
from tests.cpu.compiler.cross_compile import LOOPS, TARGETS

NAMES = [loop.rpartition(".")[2] for loop in LOOPS]

ONE_BY_ONE = r"\b_?(?:ceil|exp|exp2|floor|fma|fmax|fmin|log|pow|rint|round|trunc)f\b|\b_{2,3}\w*[sdh]f2?\b"
"""C's functions for single numbers, and those of compilers, such as `__truncsfbf2`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    command = [sys.executable, "-P", cross_compile.__file__, str(folder)]
    # Without numba's optimiser, its machine code for this processor takes less time as well.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_OPT": "0"}
    subprocess.run(command, check=True, env=environment)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_a_processors_own(folder: Path, name: str) -> None:
    ir = (folder / f"{name}.ll").read_text(encoding="utf-8")
    assert "define " in ir
    intrinsics = set(re.findall(r"@llvm\.([a-z0-9]+)", ir))
    assert intrinsics & {"x86", "aarch64", "arm"} == set()
    assert " asm " not in ir


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_no_instruction_is_missing(folder: Path, name: str, cpu: str) -> None:
    """What a processor cannot do, LLVM would have C's library do, for one number at a time."""
    code = (folder / f"{name}.{cpu}.s").read_text(encoding="utf-8")
    assert set(re.findall(ONE_BY_ONE, code)) == set()


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("name", ["attend_bfloat16", "before_bfloat16", "after_float32"])
def test_products_are_done_in_vectors(folder: Path, name: str, cpu: str) -> None:
    code = (folder / f"{name}.{cpu}.s").read_text(encoding="utf-8")
    assert len(re.findall(r"^\s+fmla(\.4s)?\s+v", code, re.MULTILINE)) > 50
