"""Finds a model's shape by its name: in the built-in table, in a folder's config, or on the hub.

Only the config is read, or the header of a `.gguf` file. No weights are loaded or fetched. torch and
transformers are imported only for a model that is not in the table.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.loading.known_models import KNOWN_MODELS, ModelShape, find_known_model, similar_names

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from minipaged.model.config import ModelConfig

HUB_TIMEOUT_SECONDS = 5.0


def shape_of(model: str) -> ModelShape:
    """The shape of a known model, of `tiny`, of a folder or `.gguf` file, or of a hub id, in this order.

    Raises:
        ModelNotFoundError: the name is none of these, or the hub cannot be reached.
        UnsupportedModelError: the size of the model's KV cache is not layers × KV heads × head dimension.
        WeightsError: a `.gguf` file cannot be read.
    """
    if (known := find_known_model(model)) is not None:
        return known
    from minipaged.loading.locations import locate

    location = locate(model, weights=False)
    if location is None:
        if model.startswith((".", "/", "~")) or Path(model).exists() or model.endswith(".gguf"):
            raise ModelNotFoundError(f"{model} is neither a folder with a config.json nor a .gguf file")
        return shape_from_config(_read_config(model, model, local=not _hub_answers()), model)
    name = location.path.resolve().name if location.origin == "a folder" else model
    if location.kind == "gguf":
        from minipaged.loading.gguf_config import read_config
        from minipaged.loading.gguf_file import GgufFile

        # The engine widens the quantised weights when it loads them.
        return shape_from_model_config(read_config(GgufFile(location.path)), location.path.stem, "bfloat16")
    if not (location.path / "config.json").is_file():
        raise ModelNotFoundError(f"the folder {model} has no config.json")
    return shape_from_config(_read_config(str(location.path), model, local=True), name)


def shape_from_model_config(config: ModelConfig, name: str, dtype: str) -> ModelShape:
    """The shape of a model that our own decoder runs."""
    import torch

    from minipaged.model.decoder import Decoder

    outline = Decoder(config, torch.float32, torch.device("meta"))
    return ModelShape(
        name=name,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        max_position_embeddings=config.max_position_embeddings,
        dtype=dtype,
        num_parameters=sum(parameter.numel() for parameter in outline.parameters()),
    )


def shape_from_config(config: PretrainedConfig, name: str) -> ModelShape:
    """The shape in a transformers config. Its parameters are counted from the model's outline,
    built without memory for the weights (torch's meta device).

    Raises:
        UnsupportedModelError: a field is missing, or layers keep something other than all keys and
            values of all tokens (sliding windows, latent attention, state-space layers).
    """
    text = config.get_text_config()
    _refuse_other_caches(text, name)
    num_layers = _field(text, name, "num_hidden_layers")
    num_heads = _field(text, name, "num_attention_heads")
    hidden_size = _field(text, name, "hidden_size")
    return ModelShape(
        name=name,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=getattr(text, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(text, "head_dim", None) or hidden_size // num_heads,
        hidden_size=hidden_size,
        max_position_embeddings=_field(text, name, "max_position_embeddings"),
        dtype=str(config.dtype or "float32").removeprefix("torch."),
        num_parameters=_count_parameters(config),
    )


def _refuse_other_caches(text: PretrainedConfig, name: str) -> None:
    window = getattr(text, "sliding_window", None)
    others = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if window and (others or getattr(text, "layer_types", None) is None):
        raise UnsupportedModelError(
            f"{name} has layers with a sliding window of {window:,} tokens, whose KV cache stops growing "
            "there: bytes per token × length does not hold for it"
        )
    if others:
        raise UnsupportedModelError(
            f"{name} has layers of other kinds than full attention ({', '.join(sorted(others))}): "
            "bytes per token × length does not hold for it"
        )
    for field, kind in (("kv_lora_rank", "latent attention"), ("multi_query", "multi-query attention")):
        if getattr(text, field, None):
            raise UnsupportedModelError(
                f"{name} has {kind} ({field} in its config), which keeps other things in its cache than "
                "keys and values for each KV head"
            )


def _field(text: PretrainedConfig, name: str, field: str) -> int:
    value = getattr(text, field, None)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedModelError(
            f"the config of {name} ({text.model_type}) should have {field} as a positive integer, "
            f"but has {value!r}"
        )
    return value


def _count_parameters(config: PretrainedConfig) -> int | None:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            outline = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except ValueError:  # not a language model, or one that transformers has no code for
        return None
    return sum(parameter.numel() for parameter in outline.parameters())


def _read_config(source: str, name: str, *, local: bool) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    except OSError as error:
        why = "the hub cannot be reached" if local else _first_line(error)
        raise ModelNotFoundError(_unknown(name, why)) from None
    # Apart from the usual ones, transformers raises errors of its configuration validator.
    except Exception as error:
        raise UnsupportedModelError(f"the config of {name} cannot be used: {_first_line(error)}") from None


def _hub_answers() -> bool:
    """Whether the hub can be reached: one short request, where the hub's own client would retry
    for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=HUB_TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        return True  # an answer, if a refusal
    except OSError:
        return False
    return True


def _unknown(name: str, why: str) -> str:
    similar = similar_names(name)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"known: {', '.join(_known_names())}"
    return f"no model {name!r}: not in the table, not a folder, and {why}; {hint}"


def _known_names() -> list[str]:
    return [model.name for model in KNOWN_MODELS]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
