"""Finds a model's shape by its name: in the built-in table, a folder's config, a GGUF file's header, or the
hub's config. No weights are loaded or fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.loading.attention_sizes import AttentionSizes, other_cache, read_attention_sizes
from minipaged.loading.hf_config import read_hf_config, with_defaults
from minipaged.loading.json_fields import Fields
from minipaged.loading.known_models import KNOWN_MODELS, ModelShape, find_known_model, similar_names
from minipaged.model.config import ModelConfig


def shape_of(model: str) -> ModelShape:
    """The shape of a known model, or of a name for `LLM`: `tiny`, a folder, a `.gguf` file, a hub id.

    It works for every model that the engine runs, and for many others, because it needs only the attention
    fields and the dtype.

    Raises:
        ModelNotFoundError: there is no such model, or the hub cannot be reached.
        UnsupportedModelError: the size of the model's KV cache is not layers × KV heads × head dimension, or
            the config lacks a field that is needed.
        WeightsError: a `.gguf` file cannot be read.
    """
    if (known := find_known_model(model)) is not None:
        return known
    from minipaged.loading.locations import locate_or_fetch

    try:
        location = locate_or_fetch(model, weights=False)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"{error} {_hint(model)}") from None
    if location.kind == "gguf":
        from minipaged.loading.gguf_config import read_config
        from minipaged.loading.gguf_file import GgufFile

        # The engine widens the quantised weights when it loads them.
        config = read_config(GgufFile(location.path))
        return _shape(config, location.path.stem, "bfloat16", count_parameters(config))
    from minipaged.loading.folder import read_config_values

    name = location.path.resolve().name if location.origin == "a folder" else model
    return shape_from_config(read_config_values(location.path), name)


def shape_from_config(values: Mapping[str, object], name: str) -> ModelShape:
    """The shape that a `config.json` describes.

    It includes the number of parameters if the engine can run the model.

    Args:
        values: the contents of the file.
        name: what to call the model.

    Raises:
        UnsupportedModelError: as for `shape_of`.
    """
    # A model for images or audio has the fields of its text model one level down.
    inner = values.get("text_config")
    own = inner if isinstance(inner, Mapping) else values
    given = with_defaults(own)
    try:
        dtype = _dtype(given) or _dtype(Fields(values)) or "float32"
        other, sizes = other_cache(given), read_attention_sizes(given)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"the config of {name}: {error}") from None
    if other is not None:
        raise UnsupportedModelError(
            f"{name} has {other}: the size of its keys and values is not layers × KV heads × head dimension, "
            "or is not known"
        )
    return _shape(sizes, name, dtype, _count_if_supported(values))


def count_parameters(config: ModelConfig) -> int:
    """The number of weights of a model that the engine runs; tied embeddings count once."""
    import torch

    from minipaged.model.decoder import Decoder

    outline = Decoder(config, torch.float32, torch.device("meta"))
    return sum(parameter.numel() for parameter in outline.parameters())


def _count_if_supported(values: Mapping[str, object]) -> int | None:
    try:
        return count_parameters(read_hf_config(values))
    except UnsupportedModelError:
        return None


def _shape(
    sizes: AttentionSizes | ModelConfig, name: str, dtype: str, num_parameters: int | None
) -> ModelShape:
    shape = ModelShape(
        name=name,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        hidden_size=sizes.hidden_size,
        max_position_embeddings=sizes.max_position_embeddings,
        dtype=dtype,
        num_parameters=num_parameters,
    )
    for field in fields(AttentionSizes):
        if (size := getattr(shape, field.name)) < 1:
            raise UnsupportedModelError(f"the config of {name} gives {field.name}={size}")
    return shape


def _dtype(given: Fields) -> str | None:
    """The dtype, under its new or its old name. transformers has also written it as `torch.bfloat16`."""
    name = "dtype" if given.get("dtype") is not None else "torch_dtype"
    return None if given.get(name) is None else given.text(name).removeprefix("torch.")


def _hint(name: str) -> str:
    similar = similar_names(name)
    if similar:
        return f"Or did you mean {' or '.join(similar)}?"
    return f"Sizes are also known of {', '.join(model.name for model in KNOWN_MODELS)}."
