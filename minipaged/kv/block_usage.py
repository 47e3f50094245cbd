"""BlockUsage: how many blocks a run held, and how many it would have held without sharing.

The paper measures sharing (Fig. 15) as the blocks that sharing saves, divided by the blocks that would
be needed without it. The entries of a table are logical blocks. Entries of several tables may name the
same physical block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from minipaged.kv.block_table import BlockTable


@dataclass(slots=True)
class BlockUsage:
    """Block counts over the steps of a run, for one request or for a whole engine.

    Attributes:
        num_copied_blocks: blocks that were copied because they were shared when a sequence wrote into them.
        peak_blocks: the most physical blocks held in one step.
        logical_blocks: table entries, summed over the steps.
        physical_blocks: distinct blocks, summed over the steps.
    """

    num_copied_blocks: int = 0
    peak_blocks: int = 0
    logical_blocks: int = 0
    physical_blocks: int = 0

    @property
    def sharing_saving(self) -> float:
        """The share of blocks that sharing saved, from 0 to 1."""
        return 1 - self.physical_blocks / self.logical_blocks if self.logical_blocks else 0.0

    def add_step(self, tables: Sequence[BlockTable]) -> int:
        """Count the blocks that these tables hold in one step. Returns their number of entries."""
        num_logical = sum(map(len, tables))
        # One table never names a block twice.
        num_physical = len({block for table in tables for block in table}) if len(tables) > 1 else num_logical
        self.add_counts(num_logical, num_physical)
        return num_logical

    def add_counts(self, num_logical: int, num_physical: int) -> None:
        """Count one step, given its numbers of logical and physical blocks."""
        self.logical_blocks += num_logical
        self.physical_blocks += num_physical
        if num_physical > self.peak_blocks:
            self.peak_blocks = num_physical


class HasTable(Protocol):
    """The part of a `Sequence` that is needed to count its blocks."""

    block_table: BlockTable


class HoldsBlocks(Protocol):
    """The part of a `Request` that is needed to count its blocks."""

    @property
    def block_usage(self) -> BlockUsage: ...

    @property
    def sequences(self) -> Sequence[HasTable]: ...


def count_blocks(total: BlockUsage, running: Iterable[HoldsBlocks], num_in_use: int) -> None:
    """Count one step for each running request, and for the whole engine.

    Args:
        total: the engine's counts.
        running: the running requests.
        num_in_use: blocks of the pool in use. A shared block counts once.
    """
    num_logical = 0
    for request in running:
        usage, sequences = request.block_usage, request.sequences
        if len(sequences) == 1:  # a single table: each of its entries is a block
            num_entries = len(sequences[0].block_table.ids)
            usage.add_counts(num_entries, num_entries)
        else:
            num_entries = usage.add_step([seq.block_table for seq in sequences])
        num_logical += num_entries
    total.add_counts(num_logical, num_in_use)
