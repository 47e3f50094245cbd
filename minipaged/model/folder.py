"""Configuration and tokenizer of a model folder in Hugging Face's form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.model.config import Architecture, ModelConfig, token_ids, unsupported
from minipaged.model.tokenizer import Tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def read_config(folder: Path) -> ModelConfig:
    """The model's shape from config.json, with the end tokens of generation_config.json added.

    Raises:
        ModelNotFoundError: no config.json.
        UnsupportedModelError: an unreadable configuration, or one of a model that is not supported.
    """
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        ggufs = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f" To load {ggufs[0]}, give its own path." if ggufs else ""
        raise ModelNotFoundError(f"{folder} is no model folder: it has no config.json.{hint}")
    # Looked at before transformers does, which would ask to run code that comes with the model.
    model_type = _read_json(folder / "config.json").get("model_type")
    try:
        hf_config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # Apart from the usual ones, transformers raises errors of its configuration validator.
    except Exception as error:
        if model_type not in get_args(Architecture):
            raise unsupported(f"the architecture {model_type!r}") from error
        raise UnsupportedModelError(f"{folder / 'config.json'} cannot be read: {error}") from error
    config = ModelConfig.from_hf(hf_config)
    if (folder / "generation_config.json").is_file():
        more = token_ids(_read_json(folder / "generation_config.json").get("eos_token_id"))
        config = replace(config, eos_token_ids=tuple(dict.fromkeys(config.eos_token_ids + more)))
    return config


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer, or `None` for a folder without one.

    Raises:
        UnsupportedModelError: there are tokenizer files, but no fast tokenizer comes of them.
    """
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    from transformers import AutoTokenizer

    try:
        hf_tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # What it raises depends on the tokenizer's class, and on the packages that the class asks for.
    except Exception as error:
        raise UnsupportedModelError(f"The tokenizer in {folder} cannot be loaded: {error}") from error
    return Tokenizer(hf_tokenizer)


def _read_json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UnsupportedModelError(f"{path} must hold a JSON object, not {type(content).__name__}.")
    return content
