"""The shape of a model, as one small value.

Hugging Face configurations of different architectures name the same thing differently, leave
things out, and allow much that the decoder does not compute. `ModelConfig` holds what the decoder
needs and nothing else. Whatever it cannot express is refused here, by name, before any weight is
read: a model that runs with a feature silently missing would give plausible nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from minipaged.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]
RopeScaling = Literal["default", "linear", "llama3", "divisors"]

SUPPORTED = (
    "Supported: the architectures llama (Llama 2 and 3, SmolLM2), mistral (full attention), qwen2 (Qwen2 and "
    "Qwen2.5) and qwen3, dense, with SiLU, unquantised weights, and RoPE over the whole head with default, "
    "linear or llama3 scaling."
)


def unsupported(what: str) -> UnsupportedModelError:
    """The error for a model that has `what`, with the list of what is supported."""
    return UnsupportedModelError(f"This model has {what}, which is not supported. {SUPPORTED}")


@dataclass(frozen=True)
class RopeConfig:
    """How positions turn into angles. See `minipaged.model.rope`.

    Attributes:
        theta: base of the geometric series of wavelengths.
        scaling: how the frequencies are changed to reach beyond the trained length: not at all;
            `linear`, all divided by `factor`; `llama3`, only the slow ones divided (the four numbers
            below); `divisors`, each divided by its own number, as GGUF files store `llama3`.
        divisors: head_dim / 2 numbers, for `divisors` alone.
    """

    theta: float = 10_000.0
    scaling: RopeScaling = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """The shape of one decoder. Sizes count elements; names follow Hugging Face's where it has one.

    Attributes:
        num_layers: decoder layers.
        num_heads: query heads. Each KV head serves num_heads / num_kv_heads of them.
        max_position_embeddings: longest sequence that the model was made for, in tokens.
        qkv_bias, o_bias: whether the projections into and out of attention add a bias.
        qk_norm: whether each head's query and key are RMS-normalised before RoPE (Qwen3).
        eos_token_ids: tokens that end a text; may be empty.

    Raises:
        UnsupportedModelError: sizes that do not go together.
    """

    architecture: Architecture
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
        }
        for name, size in sizes.items():
            if size < 1:
                raise unsupported(f"{name}={size}")
        if self.num_heads % self.num_kv_heads:
            raise unsupported(
                f"{self.num_heads} query heads for {self.num_kv_heads} KV heads (not a multiple of them)"
            )
        if self.head_dim % 2:
            raise unsupported(f"an odd head dimension ({self.head_dim}; RoPE rotates pairs)")
        if self.rope.scaling == "divisors" and len(self.rope.divisors) != self.head_dim // 2:
            raise unsupported(f"{len(self.rope.divisors)} RoPE divisors for head dimension {self.head_dim}")

    @classmethod
    def from_hf(cls, config: PreTrainedConfig) -> ModelConfig:
        """Reads a Hugging Face configuration.

        Args:
            config: as `transformers.AutoConfig` gives it.

        Raises:
            UnsupportedModelError: an architecture or a feature that the decoder does not have.
        """
        architecture = _architecture(config)
        _refuse_features(config)
        num_heads: int = config.num_attention_heads
        attention_bias = bool(getattr(config, "attention_bias", False))
        return cls(
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


def token_ids(value: object) -> tuple[int, ...]:
    """One token id, several or none, as configuration files write them, without repetition.

    Raises:
        UnsupportedModelError: anything else.
    """
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    ids = [item for item in values if isinstance(item, int)]
    if len(ids) != len(values):
        raise UnsupportedModelError(f"eos_token_id={value!r} is neither a token id nor a list of them.")
    return tuple(dict.fromkeys(ids))


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
