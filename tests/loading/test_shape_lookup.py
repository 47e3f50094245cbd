"""From a name to a shape: folders, configs of many kinds, and unknown names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    DeepseekV3Config,
    FalconConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    JambaConfig,
    LlamaConfig,
    LlavaConfig,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    MllamaConfig,
    OPTConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

from minipaged import LLM
from minipaged.config import EngineOptions
from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.loading import hub
from minipaged.loading.hf_config import read_hf_config
from minipaged.loading.known_models import find_known_model
from minipaged.loading.shape_lookup import shape_from_config, shape_of
from tests.loading.gguf_files import write_model
from tests.oracle import FAMILIES, Family, make_config, make_hf_model


@pytest.fixture
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(hub, "_wait_for_an_answer", silent)


def as_file(config: PreTrainedConfig) -> Mapping[str, object]:
    """What `save_pretrained` writes."""
    return json.loads(config.to_json_string(use_diff=True))


SIZES: dict[str, dict[str, int]] = {
    # transformers refuses heads that do not divide the hidden size.
    "not divided": {"hidden_size": 56, "num_attention_heads": 6, "head_dim": 16, "num_key_value_heads": 2},
    "one KV head": {"hidden_size": 40, "num_attention_heads": 3, "head_dim": 32, "num_key_value_heads": 1},
    "all of its own": {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 3},
}


def test_heads_that_do_not_divide_the_hidden_size() -> None:
    values = make_config().to_dict() | SIZES["not divided"]
    assert shape_from_config(values, "it").kv_shape("float32").bytes_per_token == 2 * 2 * 2 * 16 * 4


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_shape_of_a_folder_is_the_engines(tmp_path: Path, family: Family, sizes: dict[str, int]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(make_config(family).to_dict() | sizes))
    compare_with_engine(tmp_path)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_the_shape_of_a_gguf_file_is_the_engines(tmp_path: Path, num_kv_heads: int) -> None:
    config = make_config(head_dim=48, num_kv_heads=num_kv_heads)
    compare_with_engine(write_model(tmp_path / "m.gguf", make_hf_model(config)))


def compare_with_engine(path: Path) -> None:
    """A block in the engine takes as many bytes as the shape says."""
    shape = shape_of(str(path))
    options = EngineOptions(num_blocks=64, device="cpu", dtype="float32", load_format="dummy")
    engine = LLM(str(path), **options).engine
    assert engine.memory_plan.bytes_per_block == 16 * shape.kv_shape("float32").bytes_per_token
    decoder = engine.model.decoder
    assert shape.num_parameters == sum(parameter.numel() for parameter in decoder.parameters())
    assert shape.max_position_embeddings == engine.max_model_len


LEFT_OUT = {
    "num_key_value_heads": st.sampled_from((1, 2, 8, None)),
    "head_dim": st.sampled_from((16, 48, None)),
    "max_position_embeddings": st.sampled_from((100, 4096)),
    "sliding_window": st.sampled_from((None, 128)),
    "use_sliding_window": st.booleans(),
    "rope_scaling": st.sampled_from((None, {"rope_type": "yarn", "factor": 2.0})),
    "quantization_config": st.sampled_from(({}, {"quant_method": "awq"})),
}


@given(st.sampled_from(FAMILIES), st.fixed_dictionaries({}, optional=LEFT_OUT))
def test_what_the_engine_reads_is_what_has_a_shape(model_type: str, fields: dict[str, object]) -> None:
    """With the same sizes. Computing a shape does not refuse models that only the decoder cannot run."""
    sizes = {"hidden_size": 520, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    values = {"model_type": model_type, "num_attention_heads": 32, **sizes, **fields}
    for_decoder = {"rope_scaling": None, "quantization_config": {}}
    try:
        config = read_hf_config(values | for_decoder)
    except UnsupportedModelError as error:
        if "odd head" in str(error) or "KV heads" in str(error):
            return
        with pytest.raises(UnsupportedModelError, match="sliding-window attention"):
            shape_from_config(values, "it")
        return
    shape = shape_from_config(values, "it")
    assert (shape.num_layers, shape.num_heads, shape.num_kv_heads, shape.head_dim) == (
        config.num_layers,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
    )
    assert shape.max_position_embeddings == config.max_position_embeddings


def test_known_models_come_from_the_table() -> None:
    assert shape_of("LLAMA-2-7b") is find_known_model("Llama-2-7B")


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


@pytest.mark.parametrize(
    "config",
    [
        OPTConfig(hidden_size=96, num_attention_heads=3, word_embed_proj_dim=96),
        GPT2Config(),
        GPTNeoXConfig(),
        GemmaConfig(),
        MixtralConfig(sliding_window=None),
        Qwen3MoeConfig(),
        LlavaConfig(),
        Qwen2VLConfig(),
    ],
    ids=lambda config: config.model_type,
)
def test_models_that_the_engine_does_not_have(config: PreTrainedConfig) -> None:
    """A file is read as transformers reads it."""
    text = config.get_text_config()
    shape = shape_from_config(as_file(config), "it")
    num_heads = text.num_attention_heads
    assert (shape.num_layers, shape.num_heads) == (text.num_hidden_layers, num_heads)
    assert shape.num_kv_heads == (getattr(text, "num_key_value_heads", None) or num_heads)
    assert shape.head_dim == (getattr(text, "head_dim", None) or text.hidden_size // num_heads)
    assert shape.max_position_embeddings == text.max_position_embeddings
    assert (shape.dtype, shape.num_parameters) == ("float32", None)


@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_dtype_under_its_new_name_and_its_old_one(tmp_path: Path, field: str) -> None:
    config = LlamaConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2).to_dict()
    config.pop("dtype", None)
    (tmp_path / "config.json").write_text(json.dumps({**config, field: "bfloat16"}))
    assert shape_of(str(tmp_path)).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MistralConfig(sliding_window=4096), r"sliding_window=4096"),
        (Qwen2Config(use_sliding_window=True, sliding_window=128, max_window_layers=2), "sliding_window=128"),
        (Gemma2Config(), "sliding-window attention"),
        (GptOssConfig(), "sliding-window attention"),
        (DeepseekV3Config(), "latent attention"),
        (FalconConfig(), r"counted in another way \(multi_query"),
        (Qwen3NextConfig(), "layers of type linear_attention"),
        (JambaConfig(), r"other kinds than attention \(attn_layer_period"),
        (MllamaConfig(), r"other kinds than attention \(cross_attention_layers"),
        (MambaConfig(), "does not have"),
    ],
    ids=lambda value: value.model_type if isinstance(value, PreTrainedConfig) else "",
)
def test_caches_of_other_kinds_are_refused(config: PreTrainedConfig, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        shape_from_config(as_file(config), "it")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_attention_heads": None}, "the config of it: .* does not have num_attention_heads"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers='two'"),
        ({"num_key_value_heads": 0}, "num_kv_heads=0"),
        ({"max_position_embeddings": 0}, "max_position_embeddings=0"),
        ({"dtype": 16}, "dtype=16"),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "made_up"])
def test_sizes_that_make_no_sense(model_type: str, wrong: dict[str, object], message: str) -> None:
    values = LlamaConfig().to_dict() | {"model_type": model_type}
    assert shape_from_config(values, "it").num_layers == 32
    with pytest.raises(UnsupportedModelError, match=message):
        shape_from_config(values | wrong, "it")


def test_windows_that_are_off_are_no_windows() -> None:
    assert shape_from_config(as_file(MistralConfig(sliding_window=None)), "mistral").num_kv_heads == 8
    off = as_file(Qwen2Config(use_sliding_window=False, sliding_window=128))
    assert shape_from_config(off, "qwen").num_heads == 32


def test_quantised_weights_have_a_shape_but_no_known_size() -> None:
    config = AutoConfig.for_model("llama", quantization_config={"quant_method": "gptq", "bits": 4})
    shape = shape_from_config(as_file(config), "it")
    assert (shape.num_kv_heads, shape.num_parameters) == (32, None)


@pytest.mark.usefixtures("_no_hub")
@pytest.mark.parametrize("name", ["lama-2-7b", "some/model", "a/b/c", "foo bar", "ünïcode"])
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(ModelNotFoundError) as refused:
        shape_of(name)
    assert name in str(refused.value)
    assert ("no answer" in str(refused.value)) == (name == "some/model")
    assert ("did you mean Llama-2-7B" in str(refused.value)) == (name == "lama-2-7b")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        shape_of(str(tmp_path / "empty"))
    with pytest.raises(ModelNotFoundError, match="is neither a folder"):
        shape_of(str(tmp_path / "notes.txt"))
    for name in ("missing", "missing.gguf"):
        with pytest.raises(ModelNotFoundError, match="There is no file or folder"):
            shape_of(str(tmp_path / name))


@pytest.mark.parametrize("text", ["{", '{"model_type": "nonsense"}', "[]", '{"hidden_size": "wide"}'])
def test_configs_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises((UnsupportedModelError, ModelNotFoundError)):
        shape_of(str(tmp_path))
