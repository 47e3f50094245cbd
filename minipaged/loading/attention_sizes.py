"""The sizes of the KV cache, read from a `config.json`, for the engine and for `minipaged kv`.

The engine supports four architectures. Many others have the same kind of cache: the keys and values of all
tokens, for each KV head, in all layers. So the size of their cache follows from the same few fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from minipaged.loading.json_fields import Fields
from minipaged.model.config import Architecture

_OLDER_NAMES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
}
"""GPT-2's names of the fields, which some models still use."""

_OF_OTHER_LAYERS = ("mamba", "ssm", "rwkv", "conv_", "linear_attn", "attn_layer_period", "cross_attention")
"""Prefixes of the field names of layers that do not keep a key and a value for each token."""


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes. Their names and units are those of `ModelConfig`."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int


def read_attention_sizes(fields: Fields) -> AttentionSizes:
    """The sizes, for any architecture.

    Args:
        fields: the fields of the text model, with the defaults of its architecture.

    Raises:
        UnsupportedModelError: a size is missing, or is not a whole number.
    """
    num_heads, hidden_size = _size(fields, "num_attention_heads"), _size(fields, "hidden_size")
    num_kv_heads, head_dim = fields.optional_whole("num_key_value_heads"), fields.optional_whole("head_dim")
    return AttentionSizes(
        hidden_size=hidden_size,
        num_layers=_size(fields, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        head_dim=hidden_size // max(1, num_heads) if head_dim is None else head_dim,
        max_position_embeddings=_size(fields, "max_position_embeddings"),
    )


def other_cache(fields: Fields) -> str | None:
    """The feature, in words, that gives the model another kind of cache; or `None`.

    The usual kind holds the keys and values of all tokens.

    Raises:
        UnsupportedModelError: a field has the wrong type.
    """
    kinds = sorted(set(fields.texts("layer_types")) - {"full_attention", "sliding_attention"})
    if kinds:
        return f"layers of type {', '.join(kinds)}"
    ours = fields.get("model_type") in get_args(Architecture)
    return (None if ours else _named_in_passing(fields)) or _window(fields)


def _size(fields: Fields, name: str) -> int:
    older = _OLDER_NAMES[name]
    return fields.whole(older if fields.get(name) is None and fields.get(older) is not None else name)


def _named_in_passing(fields: Fields) -> str | None:
    """`other_cache` for a model that the engine does not support, judged by the names of its fields."""
    names = fields.names()
    if other := [name for name in names if name.startswith(_OF_OTHER_LAYERS)]:
        return f"layers of other kinds than attention ({other[0]} in its config)"
    if fields.get("kv_lora_rank"):
        return "latent attention (kv_lora_rank in its config)"
    if fields.get("num_key_value_heads") is not None:
        return None
    # Without this field, each query head has its own KV head, unless another field says otherwise.
    if other := [name for name in names if "kv" in name or "multi_query" in name]:
        return f"KV heads that are counted in another way ({other[0]} in its config)"
    return None


def _window(fields: Fields) -> str | None:
    window, longest = fields.optional_whole("sliding_window"), _size(fields, "max_position_embeddings")
    # Qwen's files give a window, and other fields say whether it is used, and from which layer on. In other
    # models' files these fields have no meaning.
    qwen = str(fields.get("model_type")).startswith("qwen")
    if qwen and fields.get("use_sliding_window") is not None and not fields.flag("use_sliding_window"):
        window = None
    if layer_types := fields.texts("layer_types"):
        windowed = "sliding_attention" in layer_types
    else:
        first = (fields.optional_whole("max_window_layers") or 0) if qwen else 0
        windowed = window is not None and first < _size(fields, "num_hidden_layers")
    # A window at least as long as the longest sequence hides nothing.
    if windowed and (window is None or window < longest):
        return f"sliding-window attention (sliding_window={window}, max_position_embeddings={longest})"
    return None
