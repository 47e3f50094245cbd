"""From tokenised stories to the rows that a training step, or an evaluation, takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

IGNORED = -100
"""A label that counts nothing; PyTorch's default."""

DrawDocument = Callable[[random.Random], Sequence[int]]
"""Gives the token ids of one document, with the end token. Which one depends on the argument alone."""


def training_rows(draw: DrawDocument, rows: int, length: int, seed: str) -> Tensor:
    """Each row starts with a document and is filled with more, drawn at random; the last is cut.

    No document is masked from the one before it. The rows depend on nothing but the arguments, so an
    interrupted training goes on with the same rows.

    Args:
        draw: where documents come from.

    Returns:
        int64 `[rows, length]`.
    """
    rng = random.Random(seed)
    filled: list[list[int]] = []
    for _ in range(rows):
        row: list[int] = []
        while len(row) < length:
            row.extend(draw(rng))
        filled.append(row[:length])
    return torch.tensor(filled)  # [rows, length]


def evaluation_rows(documents: Sequence[Sequence[int]], rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All documents, one to a row, shortest first.

    Yields:
        Inputs and labels, int64 `[B, T]`, B up to `rows`. Labels are shifted already, and `IGNORED`
        behind a document's end.
    """
    ordered = sorted(documents, key=len)
    for start in range(0, len(ordered), rows):
        group = ordered[start : start + rows]
        longest = max(map(len, group)) - 1
        inputs = [[*document[:-1], *[0] * (longest + 1 - len(document))] for document in group]
        labels = [[*document[1:], *[IGNORED] * (longest + 1 - len(document))] for document in group]
        yield torch.tensor(inputs), torch.tensor(labels)  # [B, T], [B, T]
