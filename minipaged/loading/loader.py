"""From a name to a model that is ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from minipaged.cpu.replace import use_cpu_kernels
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
        name: as it was asked for.
        tokenizer: `None` for a folder without one; such a model takes and gives token ids alone.
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
    """Finds a model, fetches it if need be, and loads it.

    Args:
        name: `"tiny"`, `"smollm2-135m"`, a folder with or without a tokenizer, a `.gguf` file, or a
            hub id.
        dtype: of weights and activations; the file's numbers are converted.
        device: where the weights go.
        load_format: `"dummy"` reads no weights: the real shape, filled with random numbers.
        seed: of the random numbers.
        progress: show progress bars.
        check: is shown the configuration before weights are fetched or read, and may raise.

    Raises:
        ModelNotFoundError: no such model, or it cannot be fetched.
        UnsupportedModelError: a model that the decoder cannot compute.
        WeightsError: weights that do not fit the configuration, or cannot be read.
    """
    dummy = load_format == "dummy"
    location = locate(name, weights=not dummy)
    if location is None:
        check(_open(locate_or_fetch(name, weights=False, progress=progress)).config)
        location = locate_or_fetch(name, weights=not dummy, progress=progress)
    files = _open(location)
    check(files.config)
    tokenizer = files.read_tokenizer()
    # Opened before the decoder takes its memory, so that a folder without weights fails at once.
    source = None if dummy else files.open_source()
    decoder = _filled(files.config, source, dtype, device, progress)
    if dummy:
        fill_random(decoder.weight_views(), seed)
    if device.type == "cpu":
        use_cpu_kernels(decoder)
    return LoadedModel(name, decoder.config, decoder, tokenizer)


class _Files(NamedTuple):
    """A model's files, of which the configuration has been read."""

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
    """A decoder with a source's weights; without one its weights are not set."""
    if source is not None:
        refuse_other_sizes(config, source)
    decoder = Decoder(config, dtype, device)
    if source is not None:
        fill_views(decoder.weight_views(), source, tied=config.tie_word_embeddings, progress=progress)
    return decoder
