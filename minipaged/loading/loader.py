"""From a name to a model that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from minipaged.loading import folder
from minipaged.loading.locations import locate_or_fetch
from minipaged.loading.random_weights import fill_random
from minipaged.loading.safetensors_source import SafetensorsSource
from minipaged.loading.tensor_source import TensorSource, fill_views, refuse_other_sizes
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import Decoder
from minipaged.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        name: the name by which the model was loaded.
        config: the model's shape.
        decoder: the model in plain PyTorch. An engine that loaded its model itself may have replaced it by
            compiled code (see `minipaged/cpu/replace.py`).
        tokenizer: `None` for a folder without one. Such a model works only with token ids.
    """

    name: str
    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer | None


def load_model(
    name: str,
    *,
    dtype: torch.dtype,
    device: torch.device,
    load_format: Literal["auto", "dummy"] = "auto",
    seed: int = 0,
    progress: bool = False,
) -> LoadedModel:
    """Find a model, fetch it if necessary, and load it.

    Args:
        name: `"tiny"`, `"smollm2-135m"`, a folder with or without a tokenizer, a `.gguf` file, or a
            hub id.
        dtype: dtype of weights and activations. The file's numbers are converted to it.
        device: device of the weights.
        load_format: `"dummy"` reads no weights, and fills the real shape with random numbers.
        seed: seed of the random numbers.
        progress: show progress bars.

    Raises:
        ModelNotFoundError: there is no such model, or it cannot be fetched.
        UnsupportedModelError: the decoder cannot compute the model.
        WeightsError: the weights do not fit the configuration, or cannot be read.
    """
    dummy = load_format == "dummy"
    location = locate_or_fetch(name, weights=not dummy, progress=progress)
    read = _read_gguf if location.kind == "gguf" else _read_folder
    decoder, tokenizer = read(location.path, dtype, device, dummy, progress)
    if dummy:
        fill_random(decoder.weight_views(), seed)
    return LoadedModel(name, decoder.config, decoder, tokenizer)


def _read_folder(
    path: Path, dtype: torch.dtype, device: torch.device, dummy: bool, progress: bool
) -> tuple[Decoder, Tokenizer | None]:
    config = folder.read_config(path)
    tokenizer = folder.read_tokenizer(path)
    # Opened before the decoder takes its memory, so that a folder without weights fails at once.
    source = None if dummy else SafetensorsSource(path)
    return _filled(config, source, dtype, device, progress), tokenizer


def _read_gguf(
    path: Path, dtype: torch.dtype, device: torch.device, dummy: bool, progress: bool
) -> tuple[Decoder, Tokenizer | None]:
    # Imported here, so that a model of another kind does not wait for the gguf package.
    from minipaged.loading.gguf_config import read_config
    from minipaged.loading.gguf_file import GgufFile
    from minipaged.loading.gguf_source import GgufSource
    from minipaged.loading.gguf_tokenizer import read_tokenizer

    file = GgufFile(path)
    config = read_config(file)
    tokenizer = read_tokenizer(file)
    source = None if dummy else GgufSource(file, config)
    return _filled(config, source, dtype, device, progress), tokenizer


def _filled(
    config: ModelConfig, source: TensorSource | None, dtype: torch.dtype, device: torch.device, progress: bool
) -> Decoder:
    """A decoder with the weights of `source`. Without a source, its weights are not set."""
    if source is not None:
        refuse_other_sizes(config, source)
    decoder = Decoder(config, dtype, device)
    if source is not None:
        fill_views(decoder.weight_views(), source, tied=config.tie_word_embeddings, progress=progress)
    return decoder
