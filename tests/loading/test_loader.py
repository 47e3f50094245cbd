"""load_model: the names that it accepts, dummy weights, and its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from minipaged.errors import UnsupportedModelError
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.model.config import token_ids
from tests.loading.gguf_files import write_model
from tests.model.dense import packed_logits
from tests.oracle import (
    FAMILIES,
    Family,
    Oracle,
    add_byte_tokenizer,
    edit_json,
    make_config,
    make_hf_model,
    make_model,
)

CPU = torch.device("cpu")


def load(name: str | Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(str(name), dtype=dtype, device=CPU)


def dummy(name: str | Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(str(name), dtype=dtype, device=CPU, load_format="dummy", seed=seed)


def same(first: LoadedModel, second: LoadedModel) -> bool:
    a, b = first.decoder.weight_views(), second.decoder.weight_views()
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) for name in a)


def test_tiny() -> None:
    tiny = load("tiny")
    assert (tiny.name, tiny.config.num_layers, tiny.config.max_position_embeddings) == ("tiny", 6, 1024)
    assert tiny.tokenizer is not None
    assert tiny.config.eos_token_ids == (tiny.tokenizer.eos_token_id,)
    assert tiny.config.vocab_size == tiny.tokenizer.vocab_size
    assert same(tiny, load("tiny"))
    assert same(load("tiny", torch.bfloat16), load("tiny", torch.bfloat16))
    tokens = tiny.tokenizer.encode("Once upon a time")
    ours = packed_logits(tiny.decoder, [tokens])[0]
    assert (ours - Oracle.from_loaded(tiny).logits(tokens)).abs().max() < 1e-4


def test_tiny_says_different_things() -> None:
    tiny = load("tiny")
    oracle = Oracle.from_loaded(tiny)
    assert tiny.tokenizer is not None
    outputs = [oracle.greedy(tiny.tokenizer.encode(text), 20) for text in ("Once", "Twice", "Hello")]
    assert len({tuple(output) for output in outputs}) == 3
    assert all(len(set(output)) > 2 for output in outputs)


def test_bfloat16(tmp_path: Path) -> None:
    loaded = load(make_model(tmp_path / "m"), torch.bfloat16)
    assert {parameter.dtype for parameter in loaded.decoder.parameters()} == {torch.bfloat16}
    assert packed_logits(loaded.decoder, [[1, 2, 3]])[0].dtype == torch.float32


def test_with_and_without_a_tokenizer(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    assert load(folder).tokenizer is None
    tokenizer = load(add_byte_tokenizer(folder)).tokenizer
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("Hi")) == "Hi"


FIELDS = ({}, {"eos_token_id": None}, {"eos_token_id": 5}, {"eos_token_id": [7, 5]})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("in_generation", [None, *FIELDS])
def test_a_folder_ends_where_transformers_ends(
    tmp_path: Path, family: Family, in_generation: dict[str, object] | None
) -> None:
    """For all combinations of what the two files say or leave out."""
    folder = make_model(tmp_path / "m", family, num_layers=1)
    (folder / "generation_config.json").unlink()
    if in_generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(in_generation))
    plain = json.loads((folder / "config.json").read_text())
    plain.pop("eos_token_id")
    for in_config in ({}, {"eos_token_id": None}, {"eos_token_id": 3}, {"eos_token_id": [3, 4]}):
        (folder / "config.json").write_text(json.dumps(plain | in_config))
        theirs = AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id
        assert dummy(folder).config.eos_token_ids == token_ids(theirs), in_config


def test_a_llama_without_an_end_token_of_its_own(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", vocab_size=600)
    config = json.loads((folder / "config.json").read_text())
    config.pop("eos_token_id")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [511]}))
    assert dummy(folder).config.eos_token_ids == (511,)
    (folder / "generation_config.json").unlink()
    assert dummy(folder).config.eos_token_ids == ()


def test_a_generation_config_that_cannot_be_read(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    for content, message in (
        ("[", r"generation_config\.json cannot be read"),
        ('{"eos_token_id": "</s>"}', r"generation_config\.json: eos_token_id='</s>'"),
        ('{"temperature": "hot"}', r"generation_config\.json: .*temperature='hot': not a number"),
        ('{"top_k": 0.5}', r"generation_config\.json: .*top_k=0\.5: not a whole number"),
    ):
        (folder / "generation_config.json").write_text(content)
        with pytest.raises(UnsupportedModelError, match=message):
            dummy(folder)


@pytest.mark.parametrize("model_type", ["opt", "made_up", None, 7])
def test_other_architectures_are_refused_by_name(tmp_path: Path, model_type: object) -> None:
    folder = make_model(tmp_path / "m")
    edit_json(folder / "config.json", model_type=model_type, architectures=None)
    with pytest.raises(UnsupportedModelError, match=f"architecture {model_type!r}.*Supported: "):
        load(folder)


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    edit_json(
        folder / "config.json", model_type="made_up", auto_map={"AutoConfig": "configuration_made_up.MadeUp"}
    )
    marker = tmp_path / "it_ran"
    (folder / "configuration_made_up.py").write_text(f"open({str(marker)!r}, 'w')\nclass MadeUp: pass\n")
    with pytest.raises(UnsupportedModelError, match="architecture 'made_up'"):
        load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "llama", "hidden_size": "many"}'])
def test_unreadable_configurations(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=r"config\.json"):
        load(tmp_path)


def test_dummy_needs_only_a_configuration(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", "qwen3")
    (folder / "model.safetensors").unlink()
    first = dummy(folder)
    assert same(first, dummy(folder))
    assert not same(first, dummy(folder, seed=1))
    assert first.config.architecture == "qwen3"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dummy_logits_stay_near_one(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = make_model(tmp_path / "m", hidden_size=256, num_layers=8)
    logits = packed_logits(dummy(folder, dtype=dtype).decoder, [list(range(50))])[0]
    assert 0.3 < logits.std() < 3.0


def test_dummy_of_everything_else(tmp_path: Path) -> None:
    file = write_model(tmp_path / "m.gguf", make_hf_model(make_config()))
    assert not same(dummy(file), load(file))
    assert not same(dummy("tiny"), load("tiny"))
    assert same(dummy("tiny", 3), dummy("tiny", 3))


def test_the_progress_bar_goes_away_and_changes_nothing(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    assert same(load_model(str(folder), dtype=torch.float32, device=CPU, progress=True), load(folder))
