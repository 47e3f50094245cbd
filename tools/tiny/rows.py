"""Makes rows for training steps and evaluations from tokenised stories."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

IGNORED = -100
"""A label that is not counted in the loss; the value is PyTorch's default."""

DrawDocument = Callable[[random.Random], Sequence[int]]
"""Returns the token ids of one document with its end token. Only the argument decides which document."""


def training_rows(draw: DrawDocument, rows: int, length: int, seed: str) -> Tensor:
    """Make rows of documents that are drawn at random.

    Each row starts with a whole document and is filled with more. The last document of a row is cut. A
    document can attend to earlier documents of its row. The rows depend only on the arguments, so an
    interrupted training continues with the same rows.

    Args:
        draw: draws a document.
        rows: number of rows.
        length: tokens in a row.
        seed: seed of the random draws.

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
    """All documents, one in each row, shortest first.

    Yields:
        Inputs and labels, int64 `[B, T]`, with B up to `rows`. Labels are already shifted by one token. They
        are `IGNORED` after a document's end.
    """
    ordered = sorted(documents, key=len)
    for start in range(0, len(ordered), rows):
        group = ordered[start : start + rows]
        longest = max(map(len, group)) - 1
        inputs = [[*document[:-1], *[0] * (longest + 1 - len(document))] for document in group]
        labels = [[*document[1:], *[IGNORED] * (longest + 1 - len(document))] for document in group]
        yield torch.tensor(inputs), torch.tensor(labels)  # [B, T], [B, T]
