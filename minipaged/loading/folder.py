"""Configuration and tokenizer of a model folder in Hugging Face's form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer as Backend

from minipaged.errors import ModelNotFoundError, UnsupportedModelError
from minipaged.loading.generation_config import with_generation_config
from minipaged.loading.hf_config import read_hf_config
from minipaged.loading.json_fields import read_json
from minipaged.model.config import ModelConfig
from minipaged.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_MORE_TOKENIZER_FILES = ("special_tokens_map.json", "added_tokens.json", "tokenizer.model", "tekken.json")
_PLAIN_FIELDS = frozenset(
    (
        *("backend", "tokenizer_class", "is_local", "local_files_only", "model_input_names", "padding_side"),
        *("bos_token", "eos_token", "pad_token", "unk_token", "chat_template", "model_max_length"),
        "clean_up_tokenization_spaces",
    )
)
"""Fields of tokenizer_config.json that do not change how tokenizer.json encodes a text."""


def read_config(folder: Path) -> ModelConfig:
    """The shape from config.json, and the end tokens and sampling settings from generation_config.json.

    Raises:
        ModelNotFoundError: the folder has no config.json.
        UnsupportedModelError: the configuration is unreadable, or its model is not supported.
    """
    values = read_config_values(folder)
    try:
        config = read_hf_config(values)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{folder / 'config.json'}: {error}") from error
    generation = folder / "generation_config.json"
    if not generation.is_file():
        return config
    values = read_json(generation)
    try:
        return with_generation_config(config, values)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{generation}: {error}") from error


def read_config_values(folder: Path) -> Mapping[str, object]:
    """The fields of a folder's config.json.

    Raises:
        ModelNotFoundError: the folder has no config.json.
        UnsupportedModelError: the file is not a JSON object.
    """
    if not (folder / "config.json").is_file():
        ggufs = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f" To load {ggufs[0]}, give its own path." if ggufs else ""
        raise ModelNotFoundError(f"{folder} is not a model folder: it has no config.json.{hint}")
    return read_json(folder / "config.json")


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer, or `None` for a folder without one.

    Raises:
        UnsupportedModelError: there are tokenizer files, but they give no fast tokenizer.
    """
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    return _plain_tokenizer(folder) or Tokenizer.from_hf(_hf_tokenizer(folder))


def _plain_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer, if tokenizer.json describes it completely; otherwise `None`.

    If it does, transformers is not imported. tokenizer.json is complete if transformers 5 wrote it with its
    general class (recognised by the field `backend`), and if no other file or field changes its meaning.
    """
    plain = all((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    if not plain or any((folder / name).exists() for name in _MORE_TOKENIZER_FILES):
        return None
    config = read_json(folder / "tokenizer_config.json")
    general = config.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")
    if config.get("backend") != "tokenizers" or not general or not config.keys() <= _PLAIN_FIELDS:
        return None
    try:
        backend = Backend.from_file(str(folder / "tokenizer.json"))
    # The library raises plain Exceptions.
    except Exception as error:
        raise UnsupportedModelError(f"The tokenizer in {folder} cannot be loaded: {error}") from error
    if not _names_special_tokens(config, backend):
        return None
    eos_token = config.get("eos_token")
    eos_token_id = backend.token_to_id(eos_token) if isinstance(eos_token, str) else None
    return Tokenizer(backend, lambda: _hf_tokenizer(folder), eos_token_id)


def _names_special_tokens(config: Mapping[str, object], backend: Backend) -> bool:
    """Whether all tokens that the configuration names are already special tokens of the backend.

    If not, transformers would make them special, so transformers must load the tokenizer.
    """
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    named = [value for name, value in config.items() if name.endswith("_token") and value is not None]
    return all(isinstance(token, str) and token in special for token in named)


def _hf_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # The exception depends on the tokenizer's class, and on the packages that the class needs.
    except Exception as error:
        raise UnsupportedModelError(f"The tokenizer in {folder} cannot be loaded: {error}") from error
