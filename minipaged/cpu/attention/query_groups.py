"""QueryGroups: which tokens of a step attend to the same keys and values, so that these are read only once.

The tokens of one prompt attend to the same keys and values. So do decodes whose block tables begin with the
same blocks, since the same block id in two tables means the same memory. For example, let 32 sequences have a
common prefix of 512 tokens. If each sequence were computed by itself, a step would read the prefix 32 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from minipaged.transfer import IntArray

MOST_DECODES = 8
"""The most decodes in one group. Larger groups would save little, and would leave fewer groups to divide
among threads."""

MOST_TOKENS = 32
"""The most tokens of one sequence in a group."""

Int32 = npt.NDArray[np.int32]


class QueryGroups(NamedTuple):
    """The T tokens of a step, in G groups. All tensors are int32, on the CPU.

    Attributes:
        sequences: `[T]`, each token's sequence.
        lengths: `[T]`, how many tokens of its sequence each token attends to: the tokens before it, and
            itself.
        members: `[T]`, the tokens' indices, ordered by group.
        starts: `[G + 1]`, where each group's members begin in `members`, and where the last group ends.
        shared: `[G]`, how many leading entries the block tables of a group have in common.
    """

    sequences: Tensor
    lengths: Tensor
    members: Tensor
    starts: Tensor
    shared: Tensor


def group_queries(
    block_tables: Int32, query_starts: Sequence[int], seq_lens: Sequence[int], num_decodes: int
) -> QueryGroups:
    """Group the tokens of a step.

    Args:
        block_tables: `[S, M]`. Entries past a sequence's end may have any value.
        query_starts: `[S + 1]`, where each sequence's tokens begin, and where the last sequence ends.
        seq_lens: `[S]`, the number of tokens of each sequence, including the tokens of this step.
        num_decodes: how many leading sequences have one token.

    Returns:
        First the groups of decodes that have at least their first block in common, then the groups of tokens
        of one sequence.
    """
    query_lens = np.diff(query_starts)  # [S]
    sequences = np.repeat(np.arange(len(query_lens)), query_lens)  # [T]
    behind = np.repeat(np.asarray(query_starts[1:]), query_lens) - np.arange(len(sequences)) - 1  # [T]
    lengths = np.asarray(seq_lens, dtype=np.int64)[sequences] - behind  # [T]
    members, starts, shared = group_decodes(block_tables[:num_decodes])
    for first, end in zip(query_starts[num_decodes:], query_starts[num_decodes + 1 :], strict=False):
        members.extend(range(first, end))
        for start in range(first, end, MOST_TOKENS):
            starts.append(min(start + MOST_TOKENS, end))
            shared.append(block_tables.shape[1])
    return QueryGroups(
        *(
            torch.tensor(each, dtype=torch.int32, device="cpu")
            for each in (sequences, lengths, members, starts, shared)
        )
    )


def group_decodes(block_tables: IntArray) -> tuple[list[int], list[int], list[int]]:
    """The lists `members`, `starts` and `shared` of `QueryGroups`, for sequences with one token each."""
    if len(block_tables) == 1:
        return [0], [0, 1], [block_tables.shape[1]]
    # Sorting by bytes puts tables next to each other that begin with the same blocks.
    rows = [row.tobytes() for row in block_tables]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    firsts = block_tables[order, 0] if block_tables.size else np.zeros(len(order), np.int32)
    starts, shared = [0], []
    for i in range(1, len(order) + 1):
        begin = starts[-1]
        if i < len(order) and i - begin < MOST_DECODES and firsts[i] == firsts[begin]:
            continue
        shared.append(_num_equal(block_tables[order[begin:i]]))
        starts.append(i)
    return order, starts, shared


def _num_equal(block_tables: IntArray) -> int:
    """How many leading entries all rows have in common."""
    equal = (block_tables == block_tables[0]).all(axis=0)  # [M]
    return len(equal) if equal.all() else int(equal.argmin())
