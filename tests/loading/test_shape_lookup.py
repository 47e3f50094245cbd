"""From a name to a shape: folders, configs of many kinds, and unknown names."""

from __future__ import annotations

import json
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
from transformers import (
    DeepseekV3Config,
    GPTBigCodeConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.loading import shape_lookup
from minipaged.loading.known_models import KNOWN_MODELS
from minipaged.loading.shape_lookup import shape_from_config, shape_of


@pytest.fixture
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_lookup, "_hub_answers", lambda: False)


def test_known_models_come_from_the_table() -> None:
    assert shape_of("LLAMA-2-7b") is KNOWN_MODELS[1]


def test_a_folder(tmp_path: Path) -> None:
    config = Qwen3Config(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=50,
        max_position_embeddings=77,
        tie_word_embeddings=True,
    )
    config.save_pretrained(tmp_path / "mine")
    shape = shape_of(str(tmp_path / "mine"))
    assert (shape.name, shape.num_layers, shape.num_heads, shape.num_kv_heads) == ("mine", 2, 4, 2)
    assert (shape.head_dim, shape.hidden_size, shape.max_position_embeddings) == (32, 64, 77)
    attention = 64 * 32 * (4 + 2 + 2 + 4) + 2 * 32
    layer = attention + 3 * 64 * 96 + 2 * 64
    assert shape.num_parameters == 50 * 64 + 2 * layer + 64
    assert shape.kv_shape("bfloat16").bytes_per_token == 2 * 2 * 2 * 32 * 2


def test_the_embedded_model_needs_no_files() -> None:
    from minipaged.loading.folder import read_config
    from minipaged.loading.locations import TINY_FOLDER

    shape, config = shape_of("tiny"), read_config(TINY_FOLDER)
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim) == (
        config.num_layers,
        config.num_kv_heads,
        config.head_dim,
    )
    assert shape.num_parameters is not None
    assert shape.num_parameters > config.vocab_size * config.hidden_size


def test_head_counts_that_a_config_leaves_out() -> None:
    shape = shape_from_config(OPTConfig(hidden_size=96, num_attention_heads=3, word_embed_proj_dim=96), "opt")
    assert (shape.num_kv_heads, shape.head_dim) == (3, 32)
    assert shape.dtype == "float32"


@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_dtype_under_its_new_name_and_its_old_one(tmp_path: Path, field: str) -> None:
    config = LlamaConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2).to_dict()
    config.pop("dtype", None)
    (tmp_path / "config.json").write_text(json.dumps({**config, field: "bfloat16"}))
    assert shape_of(str(tmp_path)).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MistralConfig(sliding_window=4096), "sliding window of 4,096 tokens"),
        (
            Qwen2Config(use_sliding_window=True, sliding_window=128, max_window_layers=2),
            "sliding window of 128 tokens",
        ),
        (DeepseekV3Config(), "latent attention"),
        (GPTBigCodeConfig(multi_query=True), "multi-query attention"),
        (MambaConfig(), "layers of other kinds than full attention"),
    ],
    ids=lambda value: value.model_type if isinstance(value, PretrainedConfig) else "",
)
def test_caches_of_other_kinds_are_refused(config: PretrainedConfig, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        shape_from_config(config, "it")


def test_a_config_without_heads() -> None:
    with pytest.raises(UnsupportedModelError, match="should have num_attention_heads as a positive integer"):
        shape_from_config(PretrainedConfig.from_dict({"num_hidden_layers": 2, "hidden_size": 8}), "it")


def test_windows_that_are_off_are_no_windows() -> None:
    assert shape_from_config(MistralConfig(sliding_window=None), "mistral").num_kv_heads == 8
    assert (
        shape_from_config(Qwen2Config(use_sliding_window=False, sliding_window=128), "qwen").num_heads == 32
    )


@pytest.mark.usefixtures("_no_hub")
@pytest.mark.parametrize("name", ["lama-2-7b", "some/model", "a/b/c", "foo bar", "ünïcode"])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(ModelNotFoundError) as refused:
        shape_of(name)
    assert f"no model {name!r}" in str(refused.value)
    assert "the hub cannot be reached" in str(refused.value)
    assert ("did you mean Llama-2-7B" in str(refused.value)) == (name == "lama-2-7b")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        shape_of(str(tmp_path / "empty"))
    for name in ("notes.txt", "missing", "missing.gguf"):
        with pytest.raises(ModelNotFoundError, match="is neither a folder"):
            shape_of(str(tmp_path / name))


@pytest.mark.parametrize("text", ["{", '{"model_type": "nonsense"}', "[]", '{"hidden_size": "wide"}'])
def test_configs_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises((UnsupportedModelError, ModelNotFoundError)):
        shape_of(str(tmp_path))


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (None, True),
        (urllib.error.HTTPError("address", 404, "not found", Message(), None), True),
        (urllib.error.URLError("no network"), False),
        (TimeoutError(), False),
    ],
)
def test_whether_the_hub_answers(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, answers: bool
) -> None:
    class Response:
        def close(self) -> None: ...

    def urlopen(request: object, timeout: float) -> Response:
        assert timeout <= 5
        if error is not None:
            raise error
        return Response()

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert shape_lookup._hub_answers() is answers
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert shape_lookup._hub_answers() is False
