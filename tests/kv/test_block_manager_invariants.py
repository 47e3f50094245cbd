"""BlockManager.check_invariants detects each kind of damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minipaged.errors import InvariantError
from minipaged.kv.block_manager import BlockManager
from minipaged.request import Request, Sequence
from tests.kv.sequences import computed, make_manager, make_request


def stray_table(manager: BlockManager, seq: Sequence) -> None:
    seq.block_table.append(5)


def null_in_table(manager: BlockManager, seq: Sequence) -> None:
    seq.block_table.append(0)


def lost_table(manager: BlockManager, seq: Sequence) -> None:
    seq.block_table.clear()
    seq.num_computed_tokens = 0


def uncovered(manager: BlockManager, seq: Sequence) -> None:
    seq.num_computed_tokens = 9


def leaked(manager: BlockManager, seq: Sequence) -> None:
    manager.pool.allocate()


def finished(manager: BlockManager, seq: Sequence) -> None:
    seq.finish_reason = "stop"


def half_cached(manager: BlockManager, seq: Sequence) -> None:
    manager.pool.set_cached(seq.block_table[1], True)


def half_uncached(manager: BlockManager, seq: Sequence) -> None:
    manager.pool.set_cached(seq.block_table[0], False)


@pytest.mark.parametrize(
    "damage",
    [stray_table, null_in_table, lost_table, uncovered, leaked, finished, half_cached, half_uncached],
)
def test_check_invariants_sees_damage(damage: Callable[[BlockManager, Sequence], None]) -> None:
    manager = make_manager(8)
    seq = computed(manager, range(6))
    requests: list[Request] = [make_request(seq)]
    manager.check_invariants(requests)
    damage(manager, seq)
    with pytest.raises(InvariantError):
        manager.check_invariants(requests)
