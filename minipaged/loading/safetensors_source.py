"""Weights from safetensors files: one `model.safetensors`, or shards with an index.

A safetensors file consists of a JSON header and raw numbers, so reading it runs no code. Unpickling a `.bin`
or `.pt` file may run code, so such files are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from minipaged.errors import WeightsError

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_FORMATS = ("F64", "F32", "F16", "BF16")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

LONGEST_NAME = 255
"""Largest number of bytes in a file name. `is_file` raises an error for a longer name."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder's model. Files that the index names may be missing.

    Raises:
        WeightsError: the folder has no safetensors, or its index is unreadable.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise WeightsError(_nothing_to_load(folder))
    try:
        weight_map = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(f"{folder / INDEX} is not a readable index of shards: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or len(name.encode()) > LONGEST_NAME:
            raise WeightsError(f"{folder / INDEX} names {name!r:.200}, which is not a file in its folder.")
    return [folder / name for name in names]


def has_weights(folder: Path) -> bool:
    """Whether all weight files of a folder's model exist."""
    try:
        return all(path.is_file() for path in weight_files(folder))
    except WeightsError:
        return False


def _nothing_to_load(folder: Path) -> str:
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{folder} holds weights only as {', '.join(pickles)}. Reading such a file can run any code that "
            f"is hidden in it, so it is refused. Convert the model to safetensors."
        )
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    found = f" (only {', '.join(others)})" if others else ""
    return f"{folder} holds neither {SINGLE} nor {INDEX}{found}."


class SafetensorsSource:
    """The tensors of a model folder. See `TensorSource`.

    Raises:
        WeightsError: files are missing or damaged, or tensors are quantised.
    """

    def __init__(self, folder: Path) -> None:
        self.description = str(folder)
        self._file_of: dict[str, Path] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in weight_files(folder):
            if not path.is_file():
                raise WeightsError(f"{path.name}, named by {folder / INDEX}, is missing.")
            try:
                # Only the header is read here. The file is mapped, not loaded.
                with safe_open(path, framework="pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 (not a dict)
                        header = tensors.get_slice(name)
                        self._file_of[name] = path
                        self._shapes[name] = tuple(header.get_shape())
                        self._check_format(name, header.get_dtype())
            except (SafetensorError, OSError) as error:
                raise WeightsError(f"{path} is not a readable safetensors file: {error}") from error

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, shard by shard."""
        return self._shapes

    def _check_format(self, name: str, number_format: str) -> None:
        if number_format not in _FORMATS:
            raise WeightsError(
                f"{name} in {self.description} is stored as {number_format}. Quantised safetensors are not "
                f"supported; {', '.join(_FORMATS)} are."
            )

    def read_into(self, name: str, view: Tensor) -> None:
        """Copy a tensor into `view`."""
        # Mapping the file again for each tensor takes microseconds, and frees the memory of the last tensor.
        with safe_open(self._file_of[name], framework="pt") as tensors:
            view.copy_(tensors.get_tensor(name))
