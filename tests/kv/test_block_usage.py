"""How many blocks sharing saves, counted as in the paper (Fig. 15)."""

from __future__ import annotations

import pytest

from minipaged.kv.block_table import BlockTable
from minipaged.kv.block_usage import BlockUsage
from minipaged.request import Sequence
from tests.kv.sequences import compute, forked, make_manager


def table(*block_ids: int) -> BlockTable:
    made = BlockTable()
    made.extend(block_ids)
    return made


def test_blocks_that_several_tables_name_are_saved() -> None:
    usage = BlockUsage()
    assert usage.add_step([table(1, 2, 3), table(1, 2, 4), table(1, 5)]) == 8
    assert usage.sharing_saving == pytest.approx(3 / 8)
    assert usage.peak_blocks == 5


def test_it_adds_up_over_the_steps() -> None:
    usage = BlockUsage()
    usage.add_step([table(1, 2), table(1, 2)])
    usage.add_step([table(1, 2, 3), table(1, 2, 4)])
    assert (usage.logical_blocks, usage.physical_blocks, usage.peak_blocks) == (10, 6, 4)
    assert usage.sharing_saving == pytest.approx(0.4)


def test_nothing_is_saved_by_one_sequence_or_by_none() -> None:
    usage = BlockUsage()
    assert usage.sharing_saving == 0.0
    usage.add_step([])
    usage.add_step([table(4, 5, 6)])
    assert (usage.sharing_saving, usage.peak_blocks) == (0.0, 3)


@pytest.mark.parametrize(
    ("num_samples", "unshared", "shared", "saving"),
    [(2, 50, 32, 0.36), (4, 100, 46, 0.54), (6, 150, 60, 0.60)],
)
def test_the_table_of_the_article(num_samples: int, unshared: int, shared: int, saving: float) -> None:
    """Blocks of 16, a prompt of 300 tokens, 100 new tokens in each sample."""
    manager = make_manager(200, block_size=16)
    samples = [Sequence(list(range(300)))]
    compute(manager, samples[0])
    samples += [forked(manager, samples[0]) for _ in range(num_samples - 1)]
    for step in range(100):
        for number, seq in enumerate(samples):
            seq.token_ids.append(1000 * number + step)
            compute(manager, seq)
    usage = BlockUsage()
    usage.add_step([seq.block_table for seq in samples])
    assert (usage.logical_blocks, usage.physical_blocks) == (unshared, shared)
    assert usage.sharing_saving == pytest.approx(saving)
