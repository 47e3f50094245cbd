"""The shape of a model from a GGUF file's metadata."""

from __future__ import annotations

import math
from typing import cast

from gguf import GGMLQuantizationType

from minipaged.errors import UnsupportedModelError
from minipaged.loading.gguf_end_tokens import end_token_ids
from minipaged.loading.gguf_file import GgufFile, GgufValue
from minipaged.model.config import Architecture, ModelConfig, RopeConfig, unsupported
from minipaged.sampling.defaults import SamplingDefaults

_DIVISORS = "rope_freqs.weight"
_ARCHITECTURES = ("llama", "qwen2", "qwen3")


def read_config(file: GgufFile) -> ModelConfig:
    """Read the metadata. In GGUF, Mistral models have the architecture llama, whose computation is the same.

    Raises:
        UnsupportedModelError: the decoder does not support the architecture or a feature, or the metadata
            lacks a necessary key.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise unsupported(f"the architecture {architecture!r}")
    get = _Metadata(file, str(architecture))
    _refuse_features(file, get)
    hidden_size = get.integer("embedding_length")
    num_heads = get.integer("attention.head_count")
    head_dim = get.integer("attention.key_length", hidden_size // max(1, num_heads))
    if get.integer("attention.value_length", head_dim) != head_dim:
        raise unsupported("values of another length than keys")
    rotated = get.integer("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise unsupported(f"partial rotary embedding ({rotated} of {head_dim})")
    if "token_embd.weight" not in file.tensors:
        raise UnsupportedModelError(f"{file.path} has no token_embd.weight: it is not a language model.")
    return ModelConfig(
        architecture=cast(Architecture, architecture),
        hidden_size=hidden_size,
        intermediate_size=get.integer("feed_forward_length"),
        num_layers=get.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=get.integer("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        max_position_embeddings=get.integer("context_length"),
        rms_norm_eps=get.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(file, get),
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        bos_token_id=file.token_id("bos"),
        eos_token_ids=end_token_ids(file),
        sampling_defaults=_sampling_defaults(file),
    )


class _Metadata:
    """Typed access to the keys that begin with the architecture's name."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture

    def value(self, key: str) -> GgufValue | None:
        return self._file.metadata.get(f"{self._architecture}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        value = self.value(key)
        value = default if value is None else value
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # one number per layer, all equal
        if isinstance(value, bool) or not isinstance(value, int | float):
            found = "no" if value is None else f"{value!r} as"
            raise UnsupportedModelError(
                f"{self._file.path} has {found} {self._architecture}.{key}; one number is needed. "
                "Sizes that differ between layers are not supported."
            )
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not float(value).is_integer():  # also refuses infinity and NaN
            raise UnsupportedModelError(
                f"{self._file.path} has {value!r} as {self._architecture}.{key}; a whole number is needed."
            )
        return int(value)


def _refuse_features(file: GgufFile, get: _Metadata) -> None:
    if get.integer("expert_count", 0) > 0:
        raise unsupported("a mixture of experts")
    window = get.integer("attention.sliding_window", 0)
    if 0 < window < get.integer("context_length"):
        raise unsupported(f"sliding-window attention ({window} tokens)")
    parts = file.metadata.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModelError(
            f"{file.path} is one of {parts} parts. Merge them first (llama-gguf-split --merge)."
        )


def _rope(file: GgufFile, get: _Metadata) -> RopeConfig:
    theta = get.number("rope.freq_base", 10_000.0)
    kind = get.value("rope.scaling.type")
    if _DIVISORS in file.tensors:
        # Llama 3's RoPE scaling: the converter has computed a divisor for each frequency.
        tensor = file.tensors[_DIVISORS]
        if tensor.kind != GGMLQuantizationType.F32 or len(tensor.shape) != 1:
            raise unsupported(
                f"{_DIVISORS} of {tensor.kind.name} {list(tensor.shape)}, not of F32 in one row"
            )
        (divisors,) = file.data(tensor).view("<f4")
        return RopeConfig(theta, "divisors", divisors=tuple(float(divisor) for divisor in divisors))
    if kind is None and (get.value("rope.scaling.factor") or get.value("rope.scale_linear")):
        kind = "linear"  # older files have only a factor, which means linear scaling
    if kind in (None, "none"):
        return RopeConfig(theta)
    if kind == "linear":
        older = get.value("rope.scaling.factor") is None and get.value("rope.scale_linear") is not None
        key = "rope.scale_linear" if older else "rope.scaling.factor"
        return RopeConfig(theta, "linear", factor=get.number(key))
    raise unsupported(f"RoPE scaling {kind!r}")


def _sampling_defaults(file: GgufFile) -> SamplingDefaults:
    """The settings that the converter has taken from generation_config.json."""

    def number(key: str) -> float | None:
        value = file.metadata.get(f"general.sampling.{key}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(f"{value:.7g}")  # so 0.6 in 32 bits becomes 0.6 again

    top_k = number("top_k")
    return SamplingDefaults(
        temperature=number("temp"),
        top_k=None if top_k is None else int(top_k),
        top_p=number("top_p"),
        min_p=number("min_p"),
        repetition_penalty=number("penalty_repeat"),
    )
