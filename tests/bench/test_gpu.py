"""The GPU check, rehearsed: it runs through, finds what is wrong, and writes its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from minipaged.attention.backend import select_attention
from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.triton_setup import INTERPRET
from minipaged.bench import gpu_engine
from minipaged.bench.gpu import run_gpu_check
from minipaged.bench.gpu_kernels import REHEARSAL, KernelBench
from minipaged.cli.main import main
from minipaged.errors import ConfigError

ROOT = Path(__file__).parents[2]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PARTS = [
    "correctness",
    "far blocks",
    "copy bandwidth",
    "decode",
    "price of paging",
    "block sizes",
    "prefill",
    "engine",
]


def test_the_rehearsal(tmp_path: Path) -> None:
    """In a process of its own, where nothing is prepared; with a GPU, the interpreter is asked for."""
    out = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", "bench", "gpu", "--rehearse", "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {INTERPRET: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    assert [part["name"] for part in record["parts"]] == PARTS
    assert all(part["rows"] and not part["failed"] for part in record["parts"])
    assert record["rehearsal"]
    assert record["machine"]["torch"] == torch.__version__
    lines = done.stdout.splitlines()[-len(PARTS) :]
    assert all(line.startswith(name) for line, name in zip(lines, PARTS, strict=True))


def test_a_wrong_kernel_is_found() -> None:
    right = select_attention("triton", DEVICE)

    def slightly_wrong(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        return right(query, kv_layer, metadata, scale * 1.1)

    def never_written(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        return torch.full_like(query, float("nan"))

    for attention in (slightly_wrong, never_written):
        result = KernelBench(attention, DEVICE, REHEARSAL).far_blocks()
        assert result.failed
        assert not result.rows[0]["right"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="--rehearse runs the same"):
        run_gpu_check(tmp_path / "record.json", rehearse=False)
    assert main(["bench", "gpu", "--out", str(tmp_path / "record.json")]) == 2
    assert "no GPU here" in capsys.readouterr().err


def test_the_workload_is_nano_vllms() -> None:
    """Its README has the number of output tokens."""
    workload = gpu_engine.nano_vllm_workload(gpu_engine.FULL)
    assert len(workload.requests) == 256
    assert workload.num_output_tokens == 133_966


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, the interpreter is refused before")
def test_a_file_that_cannot_be_written_is_found_first(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        run_gpu_check(tmp_path / "no such folder" / "record.json", rehearse=True)
