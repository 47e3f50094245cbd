"""`minipaged kv`: what it prints, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import Qwen2Config

from minipaged.cli.kv import context_lengths
from minipaged.cli.main import main


def kv(*arguments: str) -> int:
    try:
        return main(["kv", *arguments])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


def rows(output: str) -> list[list[str]]:
    """The table's rows, as cells."""
    return [
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in output.splitlines()
        if line.startswith("│")
    ]


def test_opt_13b_in_12_gib(capsys: pytest.CaptureFixture[str]) -> None:
    """Paper, section 3 and Table 1, and vLLM's log line."""
    assert kv("opt-13b", "--kv-memory", "12GiB") == 0
    output = capsys.readouterr().out
    assert (
        "2 (K and V) × 40 layers × 40 KV heads × 128 × 2 bytes = 819,200 bytes (800 KiB, 819.2 kB)" in output
    )
    assert rows(output) == [
        ["512", "32", "419,430,400", "400 MiB", "30"],
        ["1,024", "64", "838,860,800", "800 MiB", "15"],
        ["2,048", "128", "1,677,721,600", "1.562 GiB", "7"],
    ]
    assert (
        "GPU KV cache size: 15,728 tokens, Maximum concurrency for 2,048 tokens per request: 7.68x\n"
        in output
    )


def test_without_memory_there_is_no_line_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("Qwen2.5-1.5B", "--length", "2048") == 0
    output = capsys.readouterr().out
    assert "28,672 bytes (28 KiB" in output
    assert rows(output) == [["2,048", "128", "58,720,256", "56 MiB"]]
    assert "KV cache size" not in output


def test_the_weights_come_off_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("OPT-13B", "--memory", "40GB", "--gpu-memory-utilization", "1") == 0
    output = capsys.readouterr().out
    assert "KV cache: 40 GB × 1 − 25.71 GB of weights = 14.29 GB" in output
    num_blocks = (40 * 10**9 - 2 * 12_853_473_280) // (16 * 819_200)
    assert f"GPU KV cache size: {num_blocks * 16:,} tokens" in output
    assert rows(output)[-1][-1] == str((num_blocks - 1) // 128)
    assert kv("OPT-13B", "--memory", "40GB", "--gpu-memory-utilization", "1", "--weights", "13GB") == 0
    assert "40 GB × 1 − 13 GB of weights = 27 GB" in capsys.readouterr().out


def test_the_default_utilization_is_the_engine_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("Llama-2-7B", "--memory", "24GiB") == 0
    assert "24 GiB × 0.92 − 12.55 GiB of weights = 9.529 GiB" in capsys.readouterr().out


def test_dtype_changes_cache_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("OPT-13B", "--dtype", "float32", "--memory", "80GB") == 0
    output = capsys.readouterr().out
    assert "× 128 × 4 bytes = 1,638,400 bytes" in output
    assert "51.41 GB of weights" in output


def test_lengths_are_whole_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("OPT-13B", "--block-size", "32", "--length", "33", "1", "33", "3000") == 0
    output = capsys.readouterr().out
    block = 32 * 819_200
    assert [row[:3] for row in rows(output)] == [
        ["1", "1", f"{block:,}"],
        ["33", "2", f"{2 * block:,}"],
        ["3,000 *", "94", f"{94 * block:,}"],
    ]
    assert "* longer than the model was trained for (2,048 tokens)" in " ".join(output.split())


def test_not_even_one_request_of_the_longest(capsys: pytest.CaptureFixture[str]) -> None:
    assert kv("OPT-13B", "--kv-memory", "1GiB") == 0
    output = capsys.readouterr().out
    assert [row[-1] for row in rows(output)] == ["2", "1", "0"]
    assert "Not even one: max_model_len=2,048 needs 128 blocks of 16 tokens" in output
    assert "GPU KV cache size: 1,296 tokens" in output  # 81 blocks, one of which is the null block
    assert "for 1,280 tokens per request: 1.01x" in output
    assert kv("OPT-13B", "--kv-memory", "1MB") == 0
    output = capsys.readouterr().out
    assert "a pool of 0 blocks holds no tokens" in output
    assert "KV cache size" not in output


def test_context_lengths() -> None:
    assert context_lengths(2048) == [512, 1024, 2048]
    assert context_lengths(40_960)[-3:] == [16_384, 32_768, 40_960]
    assert context_lengths(100) == [100]


@pytest.mark.parametrize("in_terminal", [False, True])
@pytest.mark.parametrize("width", [16, 20, 40, 50, 59, 60, 61, 80, 200])
def test_numbers_are_whole_at_every_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, in_terminal: bool
) -> None:
    arguments = ["Llama-3.1-70B", "--memory", "400GB", "--length", "512", "131072", "200000"]

    def numbers() -> list[str]:
        assert kv(*arguments) == 0
        return re.findall(r"\d[\d.,]*\d|\d", capsys.readouterr().out)

    monkeypatch.setenv("COLUMNS", "1000")
    everything = numbers()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    if in_terminal:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("TERM", "dumb")  # no codes for bold in between
    assert numbers() == everything


def test_lines_fit_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert kv("OPT-13B", "--memory", "80GB") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    words = [" ".join(line.split()) for line in lines]
    assert "2,048 tokens: 128 blocks, 1,677,721,600" in words


def test_a_folder_with_only_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my [model]"
    config = Qwen2Config(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=100,
        max_position_embeddings=600,
        dtype="bfloat16",
    )
    config.save_pretrained(folder)
    assert kv(str(folder), "--memory", "1GiB") == 0
    output = capsys.readouterr().out
    assert output.startswith("my [model]: 3 layers, 4 query heads, 2 KV heads, head dimension 16, ")
    assert "2 (K and V) × 3 layers × 2 KV heads × 16 × 2 bytes = 384 bytes" in output
    assert [row[0] for row in rows(output)] == ["512", "600"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["OPT-13B", "--memory", "24GB"], r"24 GB × 0.92 − 25.71 GB of weights leaves nothing for the KV"),
        (["OPT-13B", "--memory", "24"], r"A number without a unit is bytes: 24GB\?"),
        (["OPT-13B", "--memory", "lots"], r"argument --memory: 'lots' is not an amount of memory"),
        (["OPT-13B", "--memory", "1GB", "--kv-memory", "1GB"], r"not allowed with argument"),
        (["OPT-13B", "--block-size", "0"], r"argument --block-size: '0' is not an integer of at least 1"),
        (["OPT-13B", "--length", "x"], r"argument --length: 'x' is not an integer of at least 1"),
        (["OPT-13B", "--dtype", "int4"], r"argument --dtype: invalid choice: 'int4'"),
        (["OPT-13B", "--gpu-memory-utilization", "nan"], r"'nan' is not a number above 0 and at most 1"),
        (["OPT-13B", "--gpu-memory-utilization", "half"], r"'half' is not a number above 0 and at most 1"),
        ([], r"the following arguments are required: MODEL"),
        (["./no/such/folder"], r"There is no file or folder \./no/such/folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert kv(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err)
