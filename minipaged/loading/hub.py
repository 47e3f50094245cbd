"""Models of the Hugging Face hub: looks them up in the hub's cache on this machine, or downloads them."""

from __future__ import annotations

import re
from pathlib import Path

from minipaged.errors import ModelNotFoundError
from minipaged.loading.safetensors_source import has_weights

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SMALL_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "model.safetensors.index.json",
]
# Not `*.safetensors`, because some repositories contain the weights a second time under another name.
_WEIGHT_FILES = ["model*.safetensors"]
_SECONDS_TO_ANSWER = 5.0


def is_hub_id(name: str) -> bool:
    """Whether a name has the form `owner/name`."""
    return _ID.fullmatch(name) is not None


def cached(hub_id: str, *, weights: bool = True) -> Path | None:
    """The folder of a model in the hub's cache, if it is complete. Never uses the network.

    Args:
        hub_id: the model's id, `owner/name`.
        weights: whether a complete model needs its safetensors files.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=_patterns(weights), local_files_only=True))
    except (OSError, ValueError):
        return None
    complete = (folder / "config.json").is_file() and (not weights or has_weights(folder))
    return folder if complete else None


def download(hub_id: str, *, weights: bool = True) -> Path:
    """Download a model's missing files into the hub's cache. The hub's client shows its progress bars.

    Args:
        hub_id: the model's id, `owner/name`.
        weights: whether to fetch the safetensors files too.

    Returns:
        The model's folder in the cache.

    Raises:
        ModelNotFoundError: there is no such model, no access to it, or no network.
    """
    from huggingface_hub import snapshot_download

    try:
        _wait_for_an_answer()
        folder = snapshot_download(hub_id, allow_patterns=_patterns(weights), etag_timeout=_SECONDS_TO_ANSWER)
    # The client raises its own errors and those of its HTTP library, depending on its version.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelNotFoundError(
            f"{hub_id!r} could not be fetched from the Hugging Face hub ({type(error).__name__}: {reason})."
        ) from error
    return Path(folder)


def _wait_for_an_answer() -> None:
    """Make one request with a time limit, since some requests of the client itself wait for ever."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if not constants.HF_HUB_OFFLINE:  # in offline mode the client raises its own error
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)


def _patterns(weights: bool) -> list[str]:
    return _SMALL_FILES + _WEIGHT_FILES if weights else _SMALL_FILES
