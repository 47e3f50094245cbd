"""The GPU check as a rehearsal: it runs to its end, finds wrong kernels, and writes its record."""

from __future__ import annotations

import importlib
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
from minipaged.bench import gpu_workload
from minipaged.bench.gpu import run_gpu_check
from minipaged.bench.gpu_correctness import Correctness
from minipaged.bench.gpu_graphs import TIE, first_difference
from minipaged.bench.gpu_groups import GROUPS, Group, read_records, run_group
from minipaged.bench.gpu_sizes import REHEARSAL
from minipaged.cli.main import main
from minipaged.engine.outputs import CompletionOutput
from minipaged.errors import ConfigError
from minipaged.sampling.logprobs import Logprob
from minipaged.triton_kernels.setup import INTERPRET

ROOT = Path(__file__).parents[2]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PARTS = [name for group in GROUPS for name in group.parts]


@pytest.mark.long
def test_the_rehearsal(tmp_path: Path) -> None:
    """The command runs in a new process. The interpreter is on even if the machine has a GPU."""
    out = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", "bench", "gpu", "--rehearse", "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {INTERPRET: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    record = json.loads(out.read_text())
    assert [part["headline"] for part in record["parts"] if part["failed"]] == [], record
    assert done.returncode == 0, done.stdout + done.stderr
    assert [part["name"] for part in record["parts"]] == PARTS
    assert all(part["rows"] for part in record["parts"])
    assert record["rehearsal"]
    assert record["machine"]["torch"] == torch.__version__
    lines = done.stdout.splitlines()[-len(PARTS) :]
    assert all(line.startswith(name) for line, name in zip(lines, PARTS, strict=True))


def test_all_groups_together_stay_below_8_minutes() -> None:
    assert sum(group.seconds for group in GROUPS) < 8 * 60


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_group_has_the_parts_that_it_names(group: Group) -> None:
    """Making the parts does not run them."""
    module = importlib.import_module(group.module)
    assert tuple(module.make_parts(DEVICE, rehearse=True)) == group.parts


@pytest.mark.long
def test_a_process_that_dies_leaves_a_record_for_each_part() -> None:
    records = run_group(Group("no such group", "", 60, ("one", "two")), rehearse=True)
    assert [record.name for record in records] == ["one", "two"]
    for record in records:
        assert record.failed
        assert record.headline == "no result: its process ended with exit code 1"
        assert record.error is not None
        assert "StopIteration" in record.error


def test_a_process_that_hangs_is_ended() -> None:
    records = run_group(Group("kernels", "", 0.01, ("one",)), rehearse=False)
    assert [record.headline for record in records] == ["no result: out of time"]


@pytest.mark.parametrize("text", [None, "", '[{"name": "one", "sec'])
def test_a_record_that_is_not_there(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "records.json"
    if text is not None:
        path.write_text(text)
    assert read_records(path) == []


def test_a_wrong_kernel_is_found() -> None:
    right = select_attention("triton", DEVICE)

    def slightly_wrong(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        return right(query, kv_layer, metadata, scale * 1.1)

    def never_written(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        return torch.full_like(query, float("nan"))

    for attention in (slightly_wrong, never_written):
        result = Correctness(attention, DEVICE, REHEARSAL).far_blocks()
        assert result.failed
        assert not result.rows[0]["right"]


def output(*token_ids: int, gap: float = 1.0) -> CompletionOutput:
    """An output whose second likeliest token is always 9. Its log-probability is lower by `gap`."""
    logprobs = [{token: Logprob(-1.0, 1), 9: Logprob(-1.0 - gap, 2)} for token in token_ids]
    return CompletionOutput(0, "", list(token_ids), logprobs=logprobs)


@pytest.mark.parametrize(
    ("expected", "got", "verdict"),
    [
        (output(1, 2), output(1, 2), "equal"),
        (output(1, 2, 3, gap=TIE / 2), output(1, 9, 4), "tie"),
        (output(1, 2, 3, gap=TIE * 2), output(1, 9, 4), "different"),
        (output(1, 2, 3, gap=TIE / 2), output(1, 8, 4), "different"),
        (output(1, 2), output(1), "different"),
    ],
)
def test_tokens_may_differ_after_a_tie_alone(
    expected: CompletionOutput, got: CompletionOutput, verdict: str
) -> None:
    assert first_difference(expected, got) == verdict


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="--rehearse runs the same"):
        run_gpu_check(tmp_path / "record.json", rehearse=False)
    assert main(["bench", "gpu", "--out", str(tmp_path / "record.json")]) == 2
    assert "no GPU here" in capsys.readouterr().err


def test_the_workload_is_nano_vllms() -> None:
    """The expected number of output tokens is from nano-vllm's README."""
    workload = gpu_workload.nano_vllm_workload(gpu_workload.FULL)
    assert len(workload.requests) == 256
    assert workload.num_output_tokens == 133_966


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, the interpreter is refused before")
def test_a_file_that_cannot_be_written_is_found_first(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        run_gpu_check(tmp_path / "no such folder" / "record.json", rehearse=True)
