"""Reading Hugging Face configurations into a ModelConfig, and refusing unsupported ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from minipaged.errors import UnsupportedModelError
from minipaged.loading.hf_config import read_hf_config
from minipaged.model.config import SUPPORTED, ModelConfig, RopeConfig, token_ids
from tests.oracle import config_of

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}


def test_qwen2_5_1_5b() -> None:
    config = config_of(
        Qwen2Config(
            hidden_size=1536,
            intermediate_size=8960,
            num_hidden_layers=28,
            num_attention_heads=12,
            num_key_value_heads=2,
            vocab_size=151936,
            max_position_embeddings=32768,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            tie_word_embeddings=True,
            eos_token_id=151645,
        )
    )
    assert config == ModelConfig(
        architecture="qwen2",
        hidden_size=1536,
        intermediate_size=8960,
        num_layers=28,
        num_heads=12,
        num_kv_heads=2,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        rope=RopeConfig(theta=1_000_000.0),
        tie_word_embeddings=True,
        qkv_bias=True,
        o_bias=False,
        qk_norm=False,
        bos_token_id=None,
        eos_token_ids=(151645,),
    )


def test_older_files_spell_rope_differently() -> None:
    hf = AutoConfig.for_model(
        "llama",
        rope_theta=500_000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    assert config_of(hf).rope == RopeConfig(500_000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    hf = AutoConfig.for_model("llama", rope_theta=10_000.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert config_of(hf).rope == RopeConfig(10_000.0, "linear", 2.0)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPE = st.sampled_from(
    (
        {},
        {"rope_theta": 5e5},
        {"rope_theta": 1000, "rope_scaling": None},
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 64}},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", **LLAMA3}},
        {
            "original_max_position_embeddings": 16,
            "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 64},
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
        {"rope_theta": 3.0, "rope_parameters": {"rope_type": "linear", "rope_theta": 7.0, "factor": 2}},
        {"rope_theta": 3.0, "partial_rotary_factor": 0.5},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
    )
)
OPTIONAL = {
    "num_key_value_heads": st.sampled_from((2, 8)),
    "head_dim": st.just(16),
    "max_position_embeddings": st.sampled_from((100, 4096, 200_000)),
    "rms_norm_eps": st.just(1e-5),
    "tie_word_embeddings": st.booleans(),
    "attention_bias": st.booleans(),
    "mlp_bias": st.booleans(),
    "bos_token_id": st.sampled_from((None, 3)),
    "eos_token_id": st.sampled_from((None, 3, [5, 4])),
    "sliding_window": st.sampled_from((None, 128, 4096)),
    "use_sliding_window": st.booleans(),
    "max_window_layers": st.sampled_from((0, 1, 2, 40)),
    "hidden_act": st.sampled_from(("silu", "swish", "gelu")),
    "layer_types": st.sampled_from((["full_attention"] * 2, ["full_attention", "sliding_attention"])),
}


@given(
    st.sampled_from(("llama", "mistral", "qwen2", "qwen3")),
    st.fixed_dictionaries({}, optional=OPTIONAL),
    ROPE,
)
def test_a_file_means_what_transformers_takes_it_for(
    model_type: str, fields: dict[str, object], rope: dict[str, object]
) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    values = {"model_type": model_type, "num_attention_heads": 32, **sizes, **fields, **rope}

    def read(values: dict[str, object]) -> ModelConfig | str:
        try:
            return read_hf_config(values)
        except UnsupportedModelError as error:
            return str(error)

    # The file that transformers writes has every field, and RoPE's parameters in the new spelling.
    theirs = AutoConfig.for_model(**json.loads(json.dumps(values))).to_dict()
    theirs["eos_token_id"] = fields.get("eos_token_id")  # its default never reaches `generate`
    assert read(values) == read(theirs)


def test_the_outer_original_length_goes_before_the_inner_one() -> None:
    """transformers does the same: RoPE's functions look into the configuration first."""
    inner = {"rope_type": "llama3", **LLAMA3, "rope_theta": 1e4, "original_max_position_embeddings": 64}
    values = LlamaConfig().to_dict() | {"rope_parameters": inner}
    assert read_hf_config(values).rope.original_max_position_embeddings == 64
    outer = values | {"original_max_position_embeddings": 16}
    assert read_hf_config(outer).rope.original_max_position_embeddings == 16


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 64.0}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps=1000"),
        ({"rope_theta": "1e4"}, "rope_theta"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_theta": math.inf}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"hidden_act": 5}, "hidden_act"),
        ({"layer_types": [1, 2]}, "layer_types"),
        ({"eos_token_id": True}, "eos_token_id"),
        ({"eos_token_id": {"id": 3}}, "eos_token_id"),
        ({"model_type": ["llama"]}, "architecture ['llama']"),
        ({"num_key_value_heads": 0}, "num_kv_heads=0"),
        ({"num_attention_heads": 0}, "num_heads=0"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_name(wrong: dict[str, object], named: str) -> None:
    values = LlamaConfig().to_dict()
    del values["rope_parameters"]  # the older spelling takes its place below
    read_hf_config(values)
    with pytest.raises(UnsupportedModelError) as refusal:
        read_hf_config(values | wrong)
    assert named in str(refusal.value)


def test_which_projections_have_biases() -> None:
    def biases(config: PreTrainedConfig) -> tuple[bool, bool]:
        ours = config_of(config)
        return ours.qkv_bias, ours.o_bias

    assert biases(LlamaConfig()) == (False, False)
    assert biases(LlamaConfig(attention_bias=True)) == (True, True)
    assert biases(MistralConfig(sliding_window=None)) == (False, False)
    assert biases(Qwen2Config()) == (True, False)
    assert biases(Qwen3Config()) == (False, False)
    assert config_of(Qwen3Config()).qk_norm


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (GemmaConfig(), "architecture 'gemma'"),
        (MixtralConfig(), "mixture of experts (model_type 'mixtral')"),
        (Qwen3MoeConfig(), "mixture of experts (model_type 'qwen3_moe')"),
        (MistralConfig(sliding_window=4096), "sliding-window attention (sliding_window=4096"),
        (Qwen2Config(use_sliding_window=True, max_window_layers=14), "sliding-window attention"),
        # The fields for a window's use have a meaning in Qwen's files, but none in Mistral's.
        (
            AutoConfig.for_model("mistral", sliding_window=4, use_sliding_window=False),
            "sliding-window attention",
        ),
        (AutoConfig.for_model("mistral", sliding_window=4, max_window_layers=99), "sliding-window attention"),
        (Qwen3Config(layer_types=["full_attention", "linear_attention"] * 16), "linear_attention"),
        (LlamaConfig(hidden_act="gelu"), "activation 'gelu'"),
        (LlamaConfig(mlp_bias=True), "mlp_bias"),
        (AutoConfig.for_model("llama", quantization_config={"quant_method": "gptq", "bits": 4}), "gptq"),
        (LlamaConfig(architectures=["LlamaForSequenceClassification"]), "LlamaForSequenceClassification"),
        (Qwen2Config(rope_parameters=YARN), "RoPE scaling 'yarn'"),
        (
            LlamaConfig(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "RoPE scaling 'dynamic'",
        ),
        (
            LlamaConfig(
                rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
            ),
            "partial_rotary_factor=0.5",
        ),
        (LlamaConfig(num_attention_heads=32, num_key_value_heads=5), "32 query heads for 5 KV heads"),
    ],
)
def test_unsupported_is_refused_by_name(config: PreTrainedConfig, named: str) -> None:
    with pytest.raises(UnsupportedModelError) as refusal:
        config_of(config)
    assert named in str(refusal.value)
    assert SUPPORTED in str(refusal.value)


def test_a_window_that_hides_nothing_is_no_window() -> None:
    config = MistralConfig(sliding_window=4096, max_position_embeddings=4096)
    assert config_of(config).architecture == "mistral"
    # Qwen's files give a window, and another field says that it is not used.
    assert config_of(Qwen2Config(sliding_window=128, use_sliding_window=False)).num_layers == 32


def test_end_tokens() -> None:
    assert token_ids(None) == ()
    assert token_ids(2) == (2,)
    assert token_ids([2, 7, 2]) == (2, 7)
    with pytest.raises(UnsupportedModelError, match="eos_token_id"):
        token_ids("</s>")


def test_it_is_a_value() -> None:
    config = config_of(LlamaConfig())
    assert hash(config) == hash(replace(config))
    with pytest.raises(FrozenInstanceError):
        config.num_layers = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UnsupportedModelError, match="num_layers=0"):
        replace(config, num_layers=0)
    with pytest.raises(UnsupportedModelError, match="odd head dimension"):
        replace(config, head_dim=33)


def test_needs_no_torch() -> None:
    code = "import sys, minipaged.model.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
