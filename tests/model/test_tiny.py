"""The embedded model as it ships: transformers and our engine read the same from the folder."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from minipaged import LLM, SamplingParams
from minipaged.cli.demo_workload import make_workload
from minipaged.loading.folder import read_config, read_tokenizer
from minipaged.loading.locations import TINY_FOLDER, locate
from minipaged.model.tokenizer import Tokenizer
from tests.oracle import Oracle

MOST_BYTES = 6_000_000


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokenizer = read_tokenizer(TINY_FOLDER)
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module")
def theirs() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TINY_FOLDER)


def test_the_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in TINY_FOLDER.iterdir() if path.is_file()) <= MOST_BYTES


def test_the_name_means_the_folder() -> None:
    location = locate("tiny")
    assert location is not None
    assert (location.kind, location.path) == ("folder", TINY_FOLDER)


def test_its_shape() -> None:
    config = read_config(TINY_FOLDER)
    assert config.architecture == "llama"
    assert config.num_kv_heads < config.num_heads
    assert config.max_position_embeddings >= 1024
    assert config.tie_word_embeddings


@given(st.binary())
def test_the_tokenizer_spells_arbitrary_bytes(tokenizer: Tokenizer, data: bytes) -> None:
    text = data.decode("utf-8", errors="replace")
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text
    # Latin-1 turns each byte into a character of its own, so that all of them appear.
    text = data.decode("latin-1")
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@given(st.text())
@settings(max_examples=50)
def test_the_tokenizer_is_the_one_that_transformers_reads(
    tokenizer: Tokenizer, theirs: PreTrainedTokenizerBase, text: str
) -> None:
    assert tokenizer.encode(text) == theirs.encode(text)
    assert tokenizer.eos_token_id == theirs.eos_token_id


def test_greedy_tokens_are_those_of_transformers(tokenizer: Tokenizer) -> None:
    llm = LLM("tiny", device="cpu", dtype="float32", num_blocks=200)
    prompts = ["Once upon a time", "Lily had a red ball. She", "It was dark. Tom"]
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=60))
    oracle = Oracle.from_folder(TINY_FOLDER)
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = oracle.greedy(tokenizer.encode(prompt), 60, [0])
        assert output.outputs[0].token_ids == expected


def test_stories_end_by_themselves_at_different_lengths() -> None:
    llm = LLM("tiny", device="cpu", num_blocks=2000)
    params = [SamplingParams(temperature=0.8, seed=seed, max_tokens=400) for seed in range(16)]
    outputs = llm.generate(["Once upon a time"] * 16, params)
    lengths = [
        len(output.outputs[0].token_ids) for output in outputs if output.outputs[0].finish_reason == "stop"
    ]
    assert len(lengths) >= 14
    assert len(set(lengths)) >= 8


def test_greedy_answers_to_the_demo_do_not_loop(tokenizer: Tokenizer) -> None:
    llm = LLM("tiny", device="cpu", num_blocks=1000)
    texts = [request.text or "" for request in make_workload(tokenizer, 2048, 1000).requests]
    outputs = llm.generate(texts, SamplingParams(temperature=0, max_tokens=100))
    for output in outputs:
        # In a loop, the last words occur several times.
        words = output.outputs[0].text.split()
        last = " ".join(words[-6:])
        assert len(words) < 12 or " ".join(words).count(last) <= 2, output.outputs[0].text


def test_it_loads_without_what_takes_long_to_import() -> None:
    """transformers alone takes longer than all the rest."""
    code = "import sys; from minipaged import LLM; LLM('tiny'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "torch" in loaded
    assert not loaded & {"transformers", "matplotlib", "triton", "gguf", "huggingface_hub", "fastapi"}
