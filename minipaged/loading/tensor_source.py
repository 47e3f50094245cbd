"""Filling a decoder's weight views from a file, one tensor at a time.

A source gives the names and shapes of its tensors before any tensor is read, so a file that does not fit the
model is refused at once. Then each tensor is copied directly into the decoder's memory. Apart from the model,
at most one tensor is in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from rich.progress import track
from torch import Tensor

from minipaged.errors import WeightsError
from minipaged.model.config import ModelConfig

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

_SHOWN = 8


class TensorSource(Protocol):
    """A set of named tensors that can be read one by one."""

    @property
    def description(self) -> str:
        """The source's path, for error messages."""
        ...

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor by its Hugging Face name, in an order in which reading is fast."""
        ...

    def read_into(self, name: str, view: Tensor) -> None:
        """Copy a tensor into `view`, which has the tensor's shape, and convert it to the view's dtype."""
        ...


def refuse_other_sizes(config: ModelConfig, source: TensorSource) -> None:
    """Refuse a file that is far smaller than its model, before memory for the model is allocated.

    `fill_views` finds smaller differences and names the tensors.

    Raises:
        WeightsError: the configuration describes several times as many numbers as the file contains.
    """
    in_layer = config.hidden_size * (3 * config.intermediate_size + 2 * config.num_heads * config.head_dim)
    described = config.vocab_size * config.hidden_size + config.num_layers * in_layer
    held = sum(math.prod(shape) for shape in source.shapes().values())
    if described > 4 * held + 10_000_000:
        raise WeightsError(
            f"The tensors in {source.description} hold {held:,} numbers, but its configuration describes a "
            f"model of {described:,}."
        )


def fill_views(views: Mapping[str, Tensor], source: TensorSource, *, tied: bool, progress: bool) -> None:
    """Copy every tensor of a source into its view.

    Args:
        views: weight views from `Decoder.weight_views()`.
        source: the tensors.
        tied: whether the embedding is also the output projection. Some files contain it a second time, as
            `lm_head.weight`.
        progress: show a progress bar.

    Raises:
        WeightsError: tensors are missing, superfluous, unreadable or of the wrong shape (the message names
            them), or the second copy of the embedding differs from the first.
    """
    shapes = {name: shape for name, shape in source.shapes().items() if not _ignorable(name, tied)}
    problems = [
        *_listing("missing", views.keys() - shapes.keys()),
        *_listing("not part of this model", shapes.keys() - views.keys()),
        *_listing(
            "of the wrong shape",
            (
                f"{name} {list(shape)}, not {list(views[name].shape)}"
                for name, shape in shapes.items()
                if name in views and tuple(views[name].shape) != shape
            ),
        ),
    ]
    if problems:
        raise WeightsError(
            f"The tensors in {source.description} do not fit its configuration: {'; '.join(problems)}."
        )
    for name in track(shapes, description="Loading weights", disable=not progress, transient=True):
        source.read_into(name, views[name])
    if tied and HEAD in source.shapes():
        _check_copy(source, views[EMBEDDING])


def _check_copy(source: TensorSource, embedding: Tensor) -> None:
    """Check that the output projection is equal to the embedding, as the configuration says.

    Raises:
        WeightsError: it is not.
    """
    shape = source.shapes()[HEAD]
    if shape == tuple(embedding.shape):
        head = torch.empty_like(embedding)
        source.read_into(HEAD, head)
        if torch.equal(head, embedding):
            return
    raise WeightsError(
        f"{source.description} holds an {HEAD} of its own, {list(shape)}, but its configuration says that "
        f"the embedding serves in its place (tie_word_embeddings). Set that to false, or remove {HEAD}."
    )


def _ignorable(name: str, tied: bool) -> bool:
    # Old checkpoints also stored RoPE's frequencies, which follow from the configuration.
    return name.endswith("rotary_emb.inv_freq") or (tied and name == HEAD)


def _listing(what: str, names: Iterable[str]) -> list[str]:
    found = sorted(names)
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"{what}: {', '.join(found[:_SHOWN])}{more}"]
