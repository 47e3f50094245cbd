"""`fork`, `append` and `free` on a list and on a `BlockTable`, and how the engine gets them.

Whole sequences are in `test_block_manager.py`, the paper's figures in `test_paper_block_numbers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minipaged.errors import InvariantError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.block_table import BlockTable
from minipaged.kv.copy_on_write import BlockCopy, Table, append, fork, free
from tests.kv.sequences import computed, forked


def table_of(kind: type[list[int]] | type[BlockTable], *block_ids: int) -> Table:
    table = kind()
    table.extend(block_ids)
    return table


@pytest.mark.parametrize("kind", [list, BlockTable])
def test_from_fork_to_free(kind: type[list[int]] | type[BlockTable]) -> None:
    pool = BlockPool(8)
    table = table_of(kind, pool.allocate(), pool.allocate())
    child = table_of(kind, *fork(list(table), pool.ref_cnt))
    assert pool.ref_cnt[1:4] == [2, 2, 0]
    assert append(child, 6, 10, 4, pool) == [BlockCopy(2, 3)]
    assert (list(table), list(child)) == ([1, 2], [1, 3, 4])
    assert free(child, pool.ref_cnt) == [4, 3]
    assert len(child) == 0
    assert free(table, pool.ref_cnt) == [2, 1]
    assert pool.ref_cnt == [1] + [0] * 7


def test_a_free_that_is_refused_changes_nothing() -> None:
    ref_cnt, table = [1, 1, 0, 1], [3, 2, 1]
    with pytest.raises(InvariantError, match="block 2"):
        free(table, ref_cnt)
    assert (ref_cnt, table) == ([1, 1, 0, 1], [3, 2, 1])


def test_the_manager_calls_what_it_is_given() -> None:
    called: list[str] = []

    def noting_fork(table: Sequence[int], ref_cnt: list[int]) -> list[int]:
        called.append("fork")
        return fork(table, ref_cnt)

    def noting_append(
        table: Table, start: int, end: int, block_size: int, pool: BlockPool
    ) -> list[BlockCopy] | None:
        called.append(f"append {start} {end}")
        return append(table, start, end, block_size, pool)

    def noting_free(table: Table, ref_cnt: list[int]) -> list[int]:
        called.append("free")
        return free(table, ref_cnt)

    manager = BlockManager(8, 4, None, fork=noting_fork, append=noting_append, free=noting_free)
    parent = computed(manager, range(6))
    child = forked(manager, parent)
    manager.free(child)
    manager.free(parent)
    assert called == ["append 0 6", "fork", "free", "free"]
    assert manager.pool.num_free == 7
