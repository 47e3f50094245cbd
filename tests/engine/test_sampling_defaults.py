"""Requests without parameters are sampled as the model's generation_config.json says, as in vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import GenerationConfig

from minipaged import LLM, LLMEngine, SamplingParams
from minipaged.config import EngineConfig, GenerationConfigSource
from minipaged.errors import ConfigError, SamplingParamsError
from minipaged.loading.generation_config import with_generation_config
from tests.engine.driving import drain, make_engine
from tests.model_pairs import Pair, load
from tests.oracle import add_byte_tokenizer, config_of, make_config, make_model

PROMPT = [5, 6, 7, 8]
VALUES = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.05}
OUTPUT = {"max_new_tokens": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can also chat, and whose files say how to sample from it."""
    folder = make_model(tmp_path_factory.mktemp("models") / "m", num_layers=1, max_position_embeddings=64)
    add_byte_tokenizer(folder, chat_template="{{ messages[0]['content'] }}")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, **VALUES, **OUTPUT}))
    return folder


def llm(folder: Path, source: GenerationConfigSource = "auto") -> LLM:
    return LLM(folder, device="cpu", num_blocks=40, generation_config=source, seed=3)


@pytest.mark.parametrize(
    "values",
    [
        {},
        VALUES | OUTPUT,
        {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "repetition_penalty": 1.0},
        {"temperature": 0.7, "do_sample": False},
        {"temperature": None, "top_k": 0, "eos_token_id": 3, "max_length": 20, "typical_p": 0.5},
    ],
)
def test_the_values_are_those_that_vllm_takes(tmp_path: Path, values: dict[str, object]) -> None:
    """For these fields, vLLM uses values that differ from transformers' empty configuration."""
    (tmp_path / "generation_config.json").write_text(json.dumps(values))
    differing = GenerationConfig.from_pretrained(tmp_path).to_diff_dict()
    taken = {name: differing[name] for name in (*VALUES, *OUTPUT) if differing.get(name) is not None}
    if "max_new_tokens" in taken:
        taken["max_tokens"] = taken.pop("max_new_tokens")
    defaults = with_generation_config(config_of(make_config()), values).sampling_defaults
    assert defaults.named == taken
    assert defaults.params() == SamplingParams(**taken)


def test_generate_and_chat_without_parameters(folder: Path) -> None:
    params = SamplingParams(**VALUES, max_tokens=7)  # pyright: ignore[reportArgumentType]
    assert llm(folder).get_default_sampling_params() == params
    [expected] = llm(folder).generate(PROMPT, params)
    [found] = llm(folder).generate(PROMPT)
    assert found.outputs[0].token_ids == expected.outputs[0].token_ids
    [expected] = llm(folder).chat([{"role": "user", "content": "hi"}], params)
    [found] = llm(folder).chat([{"role": "user", "content": "hi"}])
    assert found.outputs[0].token_ids == expected.outputs[0].token_ids


def test_what_is_given_counts_alone(folder: Path) -> None:
    """Given parameters are not mixed with the model's: fields that are not given are neutral."""
    engine = llm(folder).engine
    engine.add_request("given", PROMPT, SamplingParams(seed=1))
    engine.add_request("none", PROMPT)
    outputs = drain(engine)
    assert len(outputs["given"].outputs[0].token_ids) == SamplingParams().max_tokens
    assert len(outputs["none"].outputs[0].token_ids) == 7


def test_the_models_values_can_be_left_out(folder: Path) -> None:
    plain = llm(folder, "vllm")
    assert plain.get_default_sampling_params() == SamplingParams()
    [found] = plain.generate(PROMPT)
    [expected] = llm(folder, "vllm").generate(PROMPT, SamplingParams())
    assert found.outputs[0].token_ids == expected.outputs[0].token_ids


def test_where_a_text_ends_does_not_depend_on_the_setting(folder: Path, tmp_path: Path) -> None:
    copy = make_model(tmp_path / "m")
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [9]}))
    assert llm(copy, "vllm").engine.model.config.eos_token_ids == (9,)


def test_the_embedded_model_says_nothing(tiny: Pair) -> None:
    assert make_engine(tiny.model).sampling_defaults.params() == SamplingParams()


def test_other_sources_are_refused() -> None:
    with pytest.raises(ConfigError, match="generation_config must be one of auto, vllm; not 'a/folder'"):
        EngineConfig(generation_config="a/folder")  # pyright: ignore[reportArgumentType]


def test_a_value_that_is_not_possible_is_an_error_where_it_is_used(folder: Path, tmp_path: Path) -> None:
    copy = make_model(tmp_path / "m", num_layers=1)
    (copy / "generation_config.json").write_text(json.dumps({"temperature": -1}))
    model = load(str(copy))
    engine = make_engine(model, num_blocks=40)
    with pytest.raises(SamplingParamsError, match=r"model's own.*temperature=-1.*generation_config='vllm'"):
        engine.add_request("0", PROMPT)
    assert not engine.has_unfinished_requests()
    engine.add_request("0", PROMPT, SamplingParams(max_tokens=1))
    assert len(drain(engine)) == 1
    off = LLMEngine(EngineConfig(device="cpu", num_blocks=40, generation_config="vllm"), model)
    off.add_request("0", PROMPT)
    assert len(drain(off)) == 1
