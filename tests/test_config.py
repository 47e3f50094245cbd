"""EngineConfig: the model's name, and what a path means."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from minipaged import LLM, EngineConfig, SamplingParams
from minipaged.errors import ConfigError, ModelNotFoundError
from minipaged.loading.locations import TINY_FOLDER
from minipaged.options import EngineOptions
from tests.loading.gguf_files import write_model
from tests.oracle import make_config, make_hf_model


def test_a_path_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=3)
    [output] = LLM(TINY_FOLDER, device="cpu", num_blocks=70).generate("Once", greedy)
    [same] = LLM("tiny", device="cpu", num_blocks=70).generate("Once", greedy)
    assert output.outputs[0].token_ids == same.outputs[0].token_ids
    write_model(tmp_path / "m.gguf", make_hf_model(make_config(num_layers=1)))
    monkeypatch.chdir(tmp_path)
    assert LLM(Path("m.gguf"), device="cpu", num_blocks=40).engine.model.tokenizer is None


def test_a_path_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Path("tiny")` is a folder in the current one, whatever models are called."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"no file or folder \./tiny"):
        LLM(Path("tiny"))
    with pytest.raises(ModelNotFoundError, match=r"no file or folder \./Qwen/Qwen3-0\.6B"):
        LLM(Path("Qwen/Qwen3-0.6B"))


def test_what_becomes_of_a_path() -> None:
    for path, name in ((Path("/a/b"), "/a/b"), (Path("a"), "./a"), (Path("~/a"), "~/a"), ("tiny", "tiny")):
        config = EngineConfig(path)
        assert config.model == config.model_name == name
        assert EngineConfig.at_stage(2, path).model_name == name
        assert dataclasses.replace(config, block_size=4).model_name == name


@pytest.mark.parametrize("model", ["", None, 5, b"tiny", ["tiny"]])
def test_what_is_neither_a_name_nor_a_path(model: object) -> None:
    with pytest.raises(ConfigError, match="model must be a name or a path"):
        EngineConfig(model)  # pyright: ignore[reportArgumentType]


def test_the_options_of_an_llm_are_the_fields_of_a_config() -> None:
    fields = [field.name for field in dataclasses.fields(EngineConfig)]
    assert fields == ["model", *EngineOptions.__annotations__]
