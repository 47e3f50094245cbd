"""How many programs a multiprocessor holds: by threads, by registers, by shared memory, on each GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minipaged.bench.kernel_resources import TARGETS
from minipaged.triton_kernels.gpu import Gpu, Resources, programs_per_multiprocessor
from minipaged.triton_kernels.setup import INTERPRET

KB = 1024


@pytest.mark.parametrize(
    ("target", "num_threads", "registers", "shared_bytes", "expected"),
    [
        ("sm_80", 128, 16, 0, 16),  # 2,048 threads
        ("sm_86", 128, 16, 0, 12),  # 1,536 threads
        ("sm_80", 128, 80, 0, 6),  # 65,536 registers
        ("sm_80", 128, 64, 0, 8),
        ("sm_80", 128, 65, 0, 7),  # counts as 72
        ("sm_80", 256, 255, 0, 1),
        ("sm_80", 128, 32, 40 * KB, 4),  # 164 KB, of which each program takes 1 KB more than it asks for
        ("sm_80", 128, 32, 40 * KB + 1, 3),
        ("sm_80", 128, 32, 163 * KB, 1),
        ("sm_90", 128, 32, 37 * KB, 6),
        ("sm_120", 128, 32, 37 * KB, 2),
        ("sm_75", 256, 120, 16 * KB, 2),
        ("sm_75", 128, 32, 32 * KB, 2),  # nothing is taken in addition
        ("sm_75", 128, 32, 64 * KB, 1),
        ("sm_75", 128, 32, 65 * KB, 1),  # does not run at all; a rule that divides by this number goes on
        ("gfx942", 256, 128, 32 * KB, 2),
    ],
)
def test_the_smallest_limit_holds(
    target: str, num_threads: int, registers: int, shared_bytes: int, expected: int
) -> None:
    needs = Resources(num_threads, registers, shared_bytes)
    assert programs_per_multiprocessor(needs, TARGETS[target]) == expected


def properties(major: int, **more: int) -> SimpleNamespace:
    """What PyTorch says of a GPU, as far as it is read."""
    return SimpleNamespace(
        major=major,
        multi_processor_count=40,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=1024,
        shared_memory_per_multiprocessor=64 * KB,
        shared_memory_per_block=48 * KB,
        **more,
    )


def test_what_pytorch_says_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    t4 = properties(7, shared_memory_per_block_optin=64 * KB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: t4)
    assert Gpu.of(torch.device("cuda", 0)) == Gpu(40, 65_536, 1024, 64 * KB, 64 * KB, tensor_cores=False)


def test_an_amd_gpu_has_one_limit_and_its_own_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties(9))
    assert Gpu.of(torch.device("cuda", 0)) == Gpu(40, 65_536, 1024, 64 * KB, 48 * KB, tensor_cores=True)


@pytest.mark.parametrize(
    ("target", "registers", "num_programs"),
    [("sm_90", 80, 60), ("sm_90", 128, 40), ("sm_86", 80, 20)],
    ids=["six by shared memory", "four by registers", "two by shared memory"],
)
def test_splits_come_from_the_compiled_kernel(target: str, registers: int, num_programs: int) -> None:
    """On ten multiprocessors, with two KV heads and two decodes. The prompt beside them is launched too."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.triton_kernels.pretended_gpu", target, str(registers)],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name != INTERPRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (part, grid, shared_bytes), (merge, _, _), (prefill, _, _) = json.loads(done.stdout)
    assert [part, merge, prefill] == ["decode_part_kernel", "merge_kernel", "prefill_kernel"]
    assert 32 * 1024 < shared_bytes < 40 * 1024
    assert grid == [2, num_programs // 4, 2]
