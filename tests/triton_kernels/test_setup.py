"""Triton is imported only on demand and interpreted only without a GPU. A refusal says what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from minipaged import EngineConfig, LLMEngine
from minipaged.attention.backend import select_attention
from minipaged.errors import ConfigError
from minipaged.triton_kernels import setup as triton_setup
from minipaged.triton_kernels.setup import INTERPRET, prepare_triton

CPU = torch.device("cpu")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and it is used")

ONE_DECODE = """
import torch
from minipaged.attention.backend import select_attention
from minipaged.attention.metadata import AttentionMetadata

attention = select_attention("triton", torch.device("cpu"))
one = torch.ones(1, dtype=torch.int32)
metadata = AttentionMetadata(
    query_start_loc=torch.tensor([0, 1], dtype=torch.int32),
    seq_lens=one,
    block_tables=one[None],
    slot_mapping=one.long(),
    query_start_list=(0, 1),
    seq_lens_list=(1,),
    num_decodes=1,
)
kv_layer = torch.arange(256.0).view(2, 2, 1, 1, 64)
output = attention(torch.ones(1, 1, 64), kv_layer, metadata, 1.0)
assert torch.equal(output[0, 0], kv_layer[1, 1, 0, 0]), output
"""


def run(code: str, **environment: str) -> None:
    """Run code in a new Python process, where nothing has been imported or set."""
    clean = {name: value for name, value in os.environ.items() if name != INTERPRET}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_import_triton() -> None:
    run(
        "import sys, minipaged, minipaged.attention.backend\n"
        "assert 'triton' not in sys.modules\n"
        "import os; assert 'TRITON_INTERPRET' not in os.environ"
    )


@pytest.mark.long(keep=1)
@no_gpu
@pytest.mark.parametrize("before", ["", "import triton"])
def test_the_interpreter_is_turned_on_in_time(before: str) -> None:
    """It works even after an earlier import of Triton, such as the one by a transformers model class."""
    pytest.importorskip("triton")
    run(f"{before}\n{ONE_DECODE}")


@pytest.mark.long
@no_gpu
def test_what_the_user_has_set_is_respected() -> None:
    pytest.importorskip("triton")
    run(ONE_DECODE, **{INTERPRET: "1"})


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows."""
    monkeypatch.setattr(triton_setup, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"published for Linux only: use attention_backend='auto'"):
        select_attention("triton", CPU)


def test_without_triton_an_engine_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only "triton" by name is refused; `auto` takes another backend. No environment variable is set."""
    monkeypatch.delenv(INTERPRET, raising=False)
    monkeypatch.setattr(triton_setup, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the package triton, which is published for Linux only"):
        LLMEngine(
            EngineConfig("tiny", device="cpu", attention_backend="triton", num_blocks=8, max_model_len=64)
        )
    LLMEngine(EngineConfig("tiny", device="cpu", num_blocks=8, max_model_len=64))
    assert INTERPRET not in os.environ


def test_on_an_apple_gpu() -> None:
    pytest.importorskip("triton")
    with pytest.raises(ConfigError, match="not on 'mps': use attention_backend='auto'"):
        prepare_triton(torch.device("mps"))


def test_a_cpu_next_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter would be on for the whole process, which may also use the GPU."""
    pytest.importorskip("triton")
    monkeypatch.delenv(INTERPRET, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigError, match="use device='cuda', or start Python with TRITON_INTERPRET=1"):
        prepare_triton(CPU)
    assert INTERPRET not in os.environ
    monkeypatch.setenv(INTERPRET, "1")
    prepare_triton(CPU)


def test_on_a_gpu_nothing_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv(INTERPRET, raising=False)
    prepare_triton(torch.device("cuda"))
    assert INTERPRET not in os.environ


@pytest.mark.parametrize(
    ("triton", "numpy", "works"),
    [
        ("3.6.0", "2.4.0", False),
        ("3.6.0", "2.3.5", True),
        ("3.7.1", "2.4.6", True),
        ("3.10.0", "2.10.0", True),
    ],
)
def test_an_interpreter_that_does_not_know_a_newer_numpy(
    triton: str, numpy: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv(INTERPRET, "1")
    monkeypatch.setattr(triton_setup, "version", {"triton": triton, "numpy": numpy}.__getitem__)
    if works:
        prepare_triton(CPU)
    else:
        with pytest.raises(ConfigError, match=r"install numpy<2\.4, or a torch that comes with triton 3\.7"):
            prepare_triton(CPU)


@pytest.mark.parametrize("value", ["1", "true", "0", "false", "", "on"])
def test_the_switch_is_read_as_triton_reads_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton.knobs")
    monkeypatch.setenv(INTERPRET, value)
    assert triton_setup.is_interpreted() == knobs.runtime.interpret
