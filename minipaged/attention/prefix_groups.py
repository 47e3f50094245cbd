"""PrefixGroups: which sequences of a step begin with the same blocks, so that those are read once for all.

A step of 32 sequences behind one prefix of 512 tokens reads the prefix's keys and values 32 times, if each
sequence is computed by itself. The same block id in two tables is the same memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

MOST_TOGETHER = 8
"""Sequences in a group, at most: with more, little is saved any more, and threads have fewer groups to
share."""

Int32 = npt.NDArray[np.int32]


class PrefixGroups(NamedTuple):
    """A step's sequences in G groups.

    Attributes:
        members: int32 `[S]`, the sequences' indices, those of a group side by side.
        starts: int32 `[G + 1]`, where each group's members begin, and their end.
        shared: int32 `[G]`, with how many equal entries the block tables of a group begin. 0 for a group of
            one.
    """

    members: Tensor
    starts: Tensor
    shared: Tensor


def group_by_prefix(block_tables: Int32) -> PrefixGroups:
    """Groups sequences by the blocks that their tables begin with.

    Args:
        block_tables: `[S, M]`. Entries past a sequence's end may be equal, too.

    Returns:
        Groups of at most `MOST_TOGETHER`, of which the members have at least their first block in common.
    """
    # Tables with a common beginning are neighbours in the order of their bytes.
    rows = [row.tobytes() for row in block_tables]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    firsts = block_tables[order, 0] if block_tables.size else np.zeros(len(order), np.int32)
    starts, shared = [0], []
    for i in range(1, len(order) + 1):
        begin = starts[-1]
        if i < len(order) and i - begin < MOST_TOGETHER and firsts[i] == firsts[begin]:
            continue
        shared.append(_num_equal(block_tables[order[begin:i]]) if i - begin > 1 else 0)
        starts.append(i)
    return PrefixGroups(*(torch.tensor(each, dtype=torch.int32) for each in (order, starts, shared)))


def _num_equal(block_tables: Int32) -> int:
    """With how many equal entries all rows begin."""
    equal = (block_tables == block_tables[0]).all(axis=0)  # [M]
    return len(equal) if equal.all() else int(equal.argmin())
