"""Chapter 4 in the engine: its block manager forks, appends and frees, and its cache copies."""

from __future__ import annotations

from types import ModuleType

from minipaged.course.seams import Seam
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.copy_on_write import Append, BlockCopy, Free, Table


def _append(code: ModuleType) -> Append:
    def append(
        table: Table, start: int, end: int, block_size: int, pool: BlockPool
    ) -> list[BlockCopy] | None:
        block_ids = list(table)
        copies = code.append(block_ids, start, end, block_size, pool)
        _write_back(block_ids, table)
        return copies

    return append


def _free(code: ModuleType) -> Free:
    def free(table: Table, ref_cnt: list[int]) -> list[int]:
        block_ids = list(table)
        freed = code.free(block_ids, ref_cnt)
        _write_back(block_ids, table)
        return freed

    return free


def _write_back(block_ids: list[int], table: Table) -> None:
    """Copy the block ids back to the engine's table: it is an array, but the exercises use lists."""
    table.clear()
    for block_id in block_ids:
        table.append(block_id)


SEAMS = (
    Seam("4.1", "fork", lambda code: code.fork),
    Seam("4.2", "free", _free),
    Seam("4.3", "append", _append),
    Seam("4.4", "copy_blocks", lambda code: code.copy_blocks),
)
