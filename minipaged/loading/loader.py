"""Loads a model by its name, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from minipaged.loading import folder
from minipaged.loading.locations import Location, locate, locate_or_fetch
from minipaged.loading.random_weights import fill_random
from minipaged.loading.safetensors_source import SafetensorsSource
from minipaged.loading.tensor_source import TensorSource, fill_views, refuse_other_sizes
from minipaged.model.config import ModelConfig
from minipaged.model.decoder import Decoder
from minipaged.model.tokenizer import Tokenizer


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
    check: Callable[[ModelConfig], None] = lambda config: None,
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
        check: called with the configuration before weights are fetched or read. It may raise.

    Raises:
        ModelNotFoundError: there is no such model, or it cannot be fetched.
        UnsupportedModelError: the decoder cannot compute the model.
        WeightsError: the weights do not fit the configuration, or cannot be read.
    """
    dummy = load_format == "dummy"
    location = locate(name, weights=not dummy)
    if location is None:
        check(_open(locate_or_fetch(name, weights=False, progress=progress)).config)
        location = locate_or_fetch(name, weights=not dummy, progress=progress)
    files = _open(location)
    check(files.config)
    tokenizer = files.read_tokenizer()
    # The source is opened before the decoder takes its memory, so that a folder without weights fails at
    # once.
    source = None if dummy else files.open_source()
    decoder = _filled(files.config, source, dtype, device, progress)
    if dummy:
        fill_random(decoder.weight_views(), seed)
    return LoadedModel(name, decoder.config, decoder, tokenizer)


def load_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer of a model, without its weights; `None` if it has none. Arguments as for `load_model`."""
    return _open(locate_or_fetch(name, weights=False)).read_tokenizer()


class _Files(NamedTuple):
    """A model's configuration, and functions that read its other files."""

    config: ModelConfig
    read_tokenizer: Callable[[], Tokenizer | None]
    open_source: Callable[[], TensorSource]


def _open(location: Location) -> _Files:
    path = location.path
    if location.kind == "folder":
        config = folder.read_config(path)
        return _Files(config, lambda: folder.read_tokenizer(path), lambda: SafetensorsSource(path))
    # Imported here, so that a model of another kind does not wait for the gguf package.
    from minipaged.loading.gguf_config import read_config
    from minipaged.loading.gguf_file import GgufFile
    from minipaged.loading.gguf_source import GgufSource
    from minipaged.loading.gguf_tokenizer import read_tokenizer

    file = GgufFile(path)
    config = read_config(file)
    return _Files(config, lambda: read_tokenizer(file), lambda: GgufSource(file, config))


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
