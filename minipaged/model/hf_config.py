"""Reads a Hugging Face configuration into a `ModelConfig`, and refuses what that cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast, get_args

from minipaged.model.config import Architecture, ModelConfig, RopeConfig, token_ids, unsupported

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def read_hf_config(config: PreTrainedConfig) -> ModelConfig:
    """See `ModelConfig.from_hf`."""
    architecture = _architecture(config)
    _refuse_features(config)
    num_heads: int = config.num_attention_heads
    attention_bias = bool(getattr(config, "attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=num_heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope=_rope(config),
        tie_word_embeddings=bool(config.tie_word_embeddings),
        # Qwen2 always has the three input biases and Mistral never; their configurations do not say.
        qkv_bias=architecture == "qwen2" or (architecture != "mistral" and attention_bias),
        o_bias=architecture in ("llama", "qwen3") and attention_bias,
        qk_norm=architecture == "qwen3",
        bos_token_id=getattr(config, "bos_token_id", None),
        eos_token_ids=token_ids(getattr(config, "eos_token_id", None)),
    )


def _architecture(config: PreTrainedConfig) -> Architecture:
    model_type = config.model_type
    if _number_of_experts(config) or "moe" in model_type or model_type == "mixtral":
        raise unsupported(f"a mixture of experts (model_type {model_type!r})")
    if model_type not in get_args(Architecture):
        raise unsupported(f"the architecture {model_type!r}")
    expected = f"{model_type}forcausallm"
    named = getattr(config, "architectures", None) or []
    if named and expected not in [name.lower() for name in named]:
        raise unsupported(f"the head of {', '.join(named)} (not a causal language model)")
    return cast(Architecture, model_type)


def _number_of_experts(config: PreTrainedConfig) -> int:
    for name in ("num_local_experts", "num_experts", "n_routed_experts"):
        if (count := getattr(config, name, None)) and count > 1:
            return count
    return 0


def _refuse_features(config: PreTrainedConfig) -> None:
    quantization = getattr(config, "quantization_config", None)
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise unsupported(f"quantised weights (quantization_config: {method})")
    if config.hidden_act not in ("silu", "swish"):
        raise unsupported(f"the activation {config.hidden_act!r}")
    if getattr(config, "mlp_bias", False):
        raise unsupported("a bias in the MLP (mlp_bias)")
    _refuse_windows(config)


def _refuse_windows(config: PreTrainedConfig) -> None:
    window = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        others = sorted(set(layer_types) - {"full_attention", "sliding_attention"})
        if others:
            raise unsupported(f"layers of type {', '.join(others)}")
        windowed = "sliding_attention" in layer_types
    else:
        windowed = window is not None
    # A window at least as long as the longest sequence hides nothing.
    if windowed and (window is None or window < config.max_position_embeddings):
        raise unsupported(
            f"sliding-window attention (sliding_window={window}, "
            f"max_position_embeddings={config.max_position_embeddings})"
        )


def _rope(config: PreTrainedConfig) -> RopeConfig:
    # transformers 5 gathers rope_theta and rope_scaling of older files in this one mapping.
    parameters: Mapping[str, object] = getattr(config, "rope_parameters", None) or {}
    if any(isinstance(value, Mapping) for value in parameters.values()):
        raise unsupported("RoPE parameters that differ between layer types")
    kind = parameters.get("rope_type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise unsupported(f"RoPE scaling {kind!r}")
    partial = _number(parameters, "partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise unsupported(f"partial rotary embedding (partial_rotary_factor={partial})")
    if parameters.get("mrope_section"):
        raise unsupported("multimodal RoPE (mrope_section)")
    theta = _number(parameters, "rope_theta", 10_000.0)
    if kind == "default":
        return RopeConfig(theta=theta)
    factor = _number(parameters, "factor", None)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=factor)
    return RopeConfig(
        theta=theta,
        scaling="llama3",
        factor=factor,
        low_freq_factor=_number(parameters, "low_freq_factor", None),
        high_freq_factor=_number(parameters, "high_freq_factor", None),
        original_max_position_embeddings=int(
            _number(parameters, "original_max_position_embeddings", config.max_position_embeddings)
        ),
    )


def _number(parameters: Mapping[str, object], name: str, default: float | None) -> float:
    value = parameters.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unsupported(f"RoPE parameters with {name}={value!r}")
    return float(value)
