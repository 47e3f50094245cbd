"""A model written for the peers has the same numbers when minipaged or transformers reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minipaged.bench.throughput.export import write_gguf, write_hf_folder
from minipaged.errors import UnsupportedModelError
from minipaged.loading.folder import read_config
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.loading.locations import TINY_FOLDER
from minipaged.loading.random_weights import fill_random
from minipaged.model.config import ModelConfig, RopeConfig
from minipaged.model.decoder import Decoder
from minipaged.model.rope import frequencies
from tests.oracle import FAMILIES, Family, Oracle

CPU = torch.device("cpu")
LLAMA3 = RopeConfig(scaling="llama3", factor=8.0, original_max_position_embeddings=64)


def made(family: Family = "llama", dtype: torch.dtype = torch.float32, **changes: object) -> LoadedModel:
    """A random model of a family, with all the biases and norms that the family has."""
    config = replace(
        read_config(TINY_FOLDER),
        num_layers=2,
        architecture=family,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tie_word_embeddings=family in ("llama", "qwen2"),
        **changes,
    )
    decoder = Decoder(config, dtype, CPU)
    fill_random(decoder.weight_views(), seed=1)
    return LoadedModel(f"a folder/{family}", config, decoder, None)


def assert_same(model: LoadedModel, read: LoadedModel) -> None:
    views, read_views = model.decoder.weight_views(), read.decoder.weight_views()
    assert views.keys() == read_views.keys()
    for name, view in views.items():
        assert torch.equal(view, read_views[name]), name


def without_names(config: ModelConfig) -> ModelConfig:
    """The config without what a GGUF file lacks: the end tokens, and the name of the Mistral architecture."""
    architecture = "llama" if config.architecture == "mistral" else config.architecture
    return replace(config, architecture=architecture, eos_token_ids=(), bos_token_id=None)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_hf_folder(tmp_path: Path, family: Family, dtype: torch.dtype) -> None:
    model = made(family, dtype)
    read = load_model(str(write_hf_folder(model, tmp_path / "model")), dtype=dtype, device=CPU)
    assert read.config == model.config
    assert_same(model, read)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("family", FAMILIES)
def test_gguf(tmp_path: Path, family: Family) -> None:
    model = made(family)
    read = load_model(str(write_gguf(model, tmp_path / "model.gguf")), dtype=torch.float32, device=CPU)
    assert read.config.rms_norm_eps == pytest.approx(model.config.rms_norm_eps)  # stored in float32
    assert replace(without_names(read.config), rms_norm_eps=0) == replace(
        without_names(model.config), rms_norm_eps=0
    )
    assert_same(model, read)


def test_gguf_in_bfloat16_takes_half_the_room(tmp_path: Path) -> None:
    model = made(dtype=torch.bfloat16)
    narrow = write_gguf(model, tmp_path / "narrow.gguf")
    assert_same(model, load_model(str(narrow), dtype=torch.bfloat16, device=CPU))
    wide = write_gguf(made(), tmp_path / "wide.gguf")
    assert narrow.stat().st_size < 0.55 * wide.stat().st_size


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("rope", [RopeConfig(500.0), RopeConfig(scaling="linear", factor=4.0), LLAMA3])
def test_rope_is_written_too(tmp_path: Path, rope: RopeConfig) -> None:
    model = made(rope=rope)
    folder = load_model(str(write_hf_folder(model, tmp_path / "model")), dtype=torch.float32, device=CPU)
    assert folder.config.rope == rope
    file = load_model(str(write_gguf(model, tmp_path / "model.gguf")), dtype=torch.float32, device=CPU)
    read = frequencies(file.config.rope, file.config.head_dim)
    torch.testing.assert_close(read, frequencies(rope, model.config.head_dim))


def test_rope_that_a_configuration_cannot_express(tmp_path: Path) -> None:
    divisors = RopeConfig(scaling="divisors", divisors=(1.0,) * 16)
    with pytest.raises(UnsupportedModelError, match="divisors"):
        write_hf_folder(made(rope=divisors), tmp_path / "model")


def test_transformers_reads_the_folder_and_says_the_same(tmp_path: Path) -> None:
    model = load_model("tiny", dtype=torch.float32, device=CPU)
    oracle = Oracle.from_folder(write_hf_folder(model, tmp_path / "tiny"))
    assert oracle.greedy(range(100, 140), 12) == Oracle.from_loaded(model).greedy(range(100, 140), 12)
