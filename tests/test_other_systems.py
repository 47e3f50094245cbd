"""What Unix alone has is asked for where it is used, and not at an import. (No test runs on Windows.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from minipaged.bench.throughput.child import refuse_without_job_control
from minipaged.cli.main import main
from tests import import_elsewhere

NEEDS_TRITON = (
    "minipaged.triton_kernels.",
    "minipaged.bench.kernel_compile",
    "minipaged.cli.triton_probe",
    "minipaged.course.ch05.",  # whose readers write kernels
)
"""Triton is published for Linux. What needs it is imported after a look whether it is there."""


def test_every_module_is_imported_without_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", import_elsewhere.__file__],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    failed: dict[str, str] = json.loads(done.stdout)
    others = {
        name: error
        for name, error in failed.items()
        if not (name.startswith(NEEDS_TRITON) and "triton" in error)
    }
    assert others == {}
    assert "minipaged.triton_kernels.attention" in failed, "Triton was hidden"


def test_a_command_that_needs_unix_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_without_job_control()
    monkeypatch.delattr(os, "killpg")
    assert main(["bench", "throughput", "--model", "tiny"]) != 0
    assert "Linux under Windows (WSL)" in capsys.readouterr().err
