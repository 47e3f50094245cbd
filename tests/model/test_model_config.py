"""What ModelConfig reads from Hugging Face configurations, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
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
from minipaged.model.config import SUPPORTED, ModelConfig, RopeConfig, token_ids

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}


def test_qwen2_5_1_5b() -> None:
    config = ModelConfig.from_hf(
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
    assert ModelConfig.from_hf(hf).rope == RopeConfig(500_000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    hf = AutoConfig.for_model("llama", rope_theta=10_000.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert ModelConfig.from_hf(hf).rope == RopeConfig(10_000.0, "linear", 2.0)


def test_which_projections_have_biases() -> None:
    def biases(config: PreTrainedConfig) -> tuple[bool, bool]:
        ours = ModelConfig.from_hf(config)
        return ours.qkv_bias, ours.o_bias

    assert biases(LlamaConfig()) == (False, False)
    assert biases(LlamaConfig(attention_bias=True)) == (True, True)
    assert biases(MistralConfig(sliding_window=None)) == (False, False)
    assert biases(Qwen2Config()) == (True, False)
    assert biases(Qwen3Config()) == (False, False)
    assert ModelConfig.from_hf(Qwen3Config()).qk_norm


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (GemmaConfig(), "architecture 'gemma'"),
        (MixtralConfig(), "mixture of experts (model_type 'mixtral')"),
        (Qwen3MoeConfig(), "mixture of experts (model_type 'qwen3_moe')"),
        (MistralConfig(sliding_window=4096), "sliding-window attention (sliding_window=4096"),
        (Qwen2Config(use_sliding_window=True, max_window_layers=14), "sliding-window attention"),
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
        ModelConfig.from_hf(config)
    assert named in str(refusal.value)
    assert SUPPORTED in str(refusal.value)


def test_a_window_that_hides_nothing_is_no_window() -> None:
    config = MistralConfig(sliding_window=4096, max_position_embeddings=4096)
    assert ModelConfig.from_hf(config).architecture == "mistral"
    # Qwen's files give a window, and say beside it that it is not used.
    assert ModelConfig.from_hf(Qwen2Config(sliding_window=128, use_sliding_window=False)).num_layers == 32


def test_end_tokens() -> None:
    assert token_ids(None) == ()
    assert token_ids(2) == (2,)
    assert token_ids([2, 7, 2]) == (2, 7)
    with pytest.raises(UnsupportedModelError, match="eos_token_id"):
        token_ids("</s>")


def test_it_is_a_value() -> None:
    config = ModelConfig.from_hf(LlamaConfig())
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
