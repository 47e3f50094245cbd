"""Reads a Hugging Face configuration into a `ModelConfig`, and refuses models that it cannot express.

This module reads the JSON itself, because importing transformers takes longer than loading a small model.
Defaults for missing fields and older spellings of fields are the same as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from minipaged.loading.attention_sizes import other_cache, read_attention_sizes
from minipaged.loading.json_fields import Fields
from minipaged.model.config import Architecture, ModelConfig, RopeConfig, token_ids, unsupported

_LLAMA: Mapping[str, object] = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_QWEN2: Mapping[str, object] = {
    **_LLAMA,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "bos_token_id": None,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_DEFAULTS: Mapping[Architecture, Mapping[str, object]] = {
    "llama": _LLAMA,
    "mistral": {
        **_LLAMA,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "qwen2": _QWEN2,
    "qwen3": {**_QWEN2, "head_dim": 128},
}
"""The defaults of transformers for missing fields. Sizes have no default. End tokens have none either: the
default in transformers' config classes never reaches its `generate`."""

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_hf_config(values: Mapping[str, object]) -> ModelConfig:
    """The shape of the model that a `config.json` describes.

    Args:
        values: the JSON object in the file.

    Raises:
        UnsupportedModelError: the decoder does not support the architecture or a feature, or a field is
            missing or of the wrong type.
    """
    architecture = _architecture(Fields(values))
    fields = with_defaults(values)
    _refuse_features(fields)
    sizes = read_attention_sizes(fields)
    attention_bias = fields.flag("attention_bias")
    return ModelConfig(
        architecture=architecture,
        hidden_size=sizes.hidden_size,
        intermediate_size=fields.whole("intermediate_size"),
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        vocab_size=fields.whole("vocab_size"),
        max_position_embeddings=sizes.max_position_embeddings,
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope=_rope(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        # Qwen2 always has biases for Q, K and V, and Mistral never has them. Their configurations do not say
        # so.
        qkv_bias=architecture == "qwen2" or (architecture != "mistral" and attention_bias),
        o_bias=architecture in ("llama", "qwen3") and attention_bias,
        qk_norm=architecture == "qwen3",
        bos_token_id=fields.optional_whole("bos_token_id"),
        eos_token_ids=token_ids(fields.get("eos_token_id")),
    )


def with_defaults(values: Mapping[str, object]) -> Fields:
    """The fields of a `config.json`, with the defaults of its architecture for missing fields."""
    architecture = values.get("model_type")
    known = architecture in get_args(Architecture)
    return Fields(values, _DEFAULTS[cast(Architecture, architecture)] if known else None)


def _architecture(fields: Fields) -> Architecture:
    model_type = fields.get("model_type")
    experts = any((fields.optional_whole(name) or 0) > 1 for name in _EXPERTS)
    if experts or "moe" in str(model_type) or model_type == "mixtral":
        raise unsupported(f"a mixture of experts (model_type {model_type!r})")
    if model_type not in get_args(Architecture):
        raise unsupported(f"the architecture {model_type!r}")
    named = fields.texts("architectures")
    if named and f"{model_type}forcausallm" not in [name.lower() for name in named]:
        raise unsupported(f"the head of {', '.join(named)} (not a causal language model)")
    return cast(Architecture, model_type)


def _refuse_features(fields: Fields) -> None:
    quantization = fields.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise unsupported(f"quantised weights (quantization_config: {method})")
    activation = fields.text("hidden_act")
    if activation not in ("silu", "swish"):
        raise unsupported(f"the activation {activation!r}")
    if fields.flag("mlp_bias"):
        raise unsupported("a bias in the MLP (mlp_bias)")
    if (other := other_cache(fields)) is not None:
        raise unsupported(other)


def _rope(fields: Fields) -> RopeConfig:
    # Newer files have one mapping with all parameters. Older files have rope_theta and rope_scaling.
    parameters = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    if any(isinstance(value, Mapping) for value in parameters.values()):
        raise unsupported("RoPE parameters that differ between layer types")
    values = {name: value for name, value in parameters.items() if value is not None}
    longest_before = fields.get("original_max_position_embeddings")
    if longest_before is not None:  # it overrides the one in the mapping
        values["original_max_position_embeddings"] = longest_before
    rope = Fields(
        values,
        {
            "rope_type": parameters.get("type") or "default",
            "rope_theta": 10_000.0 if (theta := fields.get("rope_theta")) is None else theta,
            "partial_rotary_factor": fields.get("partial_rotary_factor") or 1.0,
            "original_max_position_embeddings": fields.whole("max_position_embeddings"),
        },
    )
    kind = rope.text("rope_type")
    if kind not in ("default", "linear", "llama3"):
        raise unsupported(f"RoPE scaling {kind!r}")
    partial = rope.number("partial_rotary_factor")
    if partial != 1.0:
        raise unsupported(f"partial rotary embedding (partial_rotary_factor={partial})")
    if parameters.get("mrope_section"):
        raise unsupported("multimodal RoPE (mrope_section)")
    theta = _positive(rope, "rope_theta")
    if kind == "default":
        return RopeConfig(theta=theta)
    factor = _positive(rope, "factor")
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=factor)
    low, high = _positive(rope, "low_freq_factor"), _positive(rope, "high_freq_factor")
    if low >= high:
        raise unsupported(f"RoPE parameters with low_freq_factor={low} and high_freq_factor={high}")
    return RopeConfig(
        theta=theta,
        scaling="llama3",
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=int(_positive(rope, "original_max_position_embeddings")),
    )


def _positive(rope: Fields, name: str) -> float:
    value = rope.number(name)
    if value <= 0:
        raise unsupported(f"RoPE parameters with {name}={value}")
    return value
