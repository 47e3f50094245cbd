"""The shape of a model, as one small object.

Hugging Face configurations of different architectures name the same thing differently, leave things out, and
allow much that the decoder does not compute. `ModelConfig` holds what the decoder needs, the tokens that end
a text, the sampling values of the model's files, and nothing else. A feature that it cannot express is
refused here, by name, before any weight is read. Without the feature, a model would still run, but give
plausible nonsense.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from minipaged.errors import UnsupportedModelError
from minipaged.sampling.defaults import SamplingDefaults

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
        scaling: how the frequencies are changed to reach beyond the trained length. `default` does not
            change them. `linear` divides all of them by `factor`. `llama3` divides only the slow ones, by
            a rule that uses the next four fields. `divisors` divides each by its own number; GGUF files
            store `llama3` scaling in this form.
        divisors: the head_dim / 2 numbers that the scaling `divisors` needs.
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
    """The shape of one decoder. Sizes are numbers of elements. Names follow Hugging Face's names.

    Attributes:
        num_layers: decoder layers.
        num_heads: query heads. Each KV head serves num_heads / num_kv_heads of them.
        max_position_embeddings: the longest sequence that the model was made for, in tokens.
        qkv_bias, o_bias: whether the projections into and out of attention add a bias.
        qk_norm: whether each head's query and key are RMS-normalised before RoPE (Qwen3).
        eos_token_ids: tokens that end a text; may be empty.
        sampling_defaults: the sampling parameters that the model's files give.

    Raises:
        UnsupportedModelError: a number is out of range, or two sizes do not fit together.
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
    sampling_defaults: SamplingDefaults = field(default_factory=SamplingDefaults)

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
        scales = {
            "rms_norm_eps": self.rms_norm_eps,
            "RoPE's theta": self.rope.theta,
            "RoPE's factor": self.rope.factor,
            **{f"RoPE's divisor {i}": divisor for i, divisor in enumerate(self.rope.divisors)},
        }
        for name, scale in scales.items():
            if not 0 <= scale < math.inf or (scale == 0 and name != "rms_norm_eps"):
                raise unsupported(f"{name}={scale}")
        if self.num_heads % self.num_kv_heads:
            raise unsupported(
                f"{self.num_heads} query heads for {self.num_kv_heads} KV heads (not a multiple of them)"
            )
        if self.head_dim % 2:
            raise unsupported(f"an odd head dimension ({self.head_dim}; RoPE rotates pairs)")
        if self.rope.scaling == "divisors" and len(self.rope.divisors) != self.head_dim // 2:
            raise unsupported(f"{len(self.rope.divisors)} RoPE divisors for head dimension {self.head_dim}")


def token_ids(value: object) -> tuple[int, ...]:
    """One token id, several or none, as configuration files write them, without repetition.

    Raises:
        UnsupportedModelError: the value is anything else.
    """
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    ids = [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
    if len(ids) != len(values):
        raise UnsupportedModelError(f"eos_token_id={value!r} is neither a token id nor a list of them.")
    return tuple(dict.fromkeys(ids))
