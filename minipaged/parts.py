"""Parts: the engine's seams, as a value.

Each field is a piece of the engine that can be replaced by another of the same shape, so that a
simple version, or the reader's own, runs inside the real engine. An engine takes its parts when it
is made; nothing is patched, and two engines can run with different ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minipaged.attention.metadata import AttentionFn
from minipaged.baseline.attend_one import AttendOneFn
from minipaged.baseline.buddy import AllocateBuddy, FreeBuddy, allocate_buddy, free_buddy
from minipaged.baseline.first_fit import AllocateFirstFit, FreeFirstFit, allocate_first_fit, free_first_fit
from minipaged.baseline.region_slots import ReadRegion, WriteRegion, read_region, write_region
from minipaged.errors import ConfigError
from minipaged.known_names import refuses_unknown_names
from minipaged.kv.block_table import PadBlockTables, SlotMapping, pad_block_tables, slot_mapping
from minipaged.kv.cache import CopyBlocks, WriteKV
from minipaged.kv.copy_on_write import Append, Fork, Free, append, fork, free
from minipaged.kv.free_queue import MakeFreeQueue, full_queue
from minipaged.kv.prefix_hash import HashFunction
from minipaged.kv.size import KVShape, num_blocks_that_fit
from minipaged.runner.capture import Capture


class BytesPerToken(Protocol):
    """The seam of `KVShape.bytes_per_token`."""

    def __call__(self, shape: KVShape) -> int: ...


class NumBlocksThatFit(Protocol):
    """The seam of `num_blocks_that_fit`."""

    def __call__(self, memory_bytes: int, shape: KVShape, block_size: int) -> int: ...


def bytes_per_token(shape: KVShape) -> int:
    """The shape's own answer."""
    return shape.bytes_per_token


@refuses_unknown_names("part", ConfigError)
@dataclass(frozen=True)
class Parts:
    """The pieces an engine runs with; by default its own.

    Attributes:
        bytes_per_token: bytes of one token's keys and values, for the memory plan.
        num_blocks_that_fit: blocks in an amount of memory, for the memory plan.
        allocate_first_fit, free_first_fit: divide the slots of a contiguous cache into regions.
        write_region: stores a sequence's new keys and values in its region.
        read_region: a sequence's keys and values, as they lie in its region.
        attend_region: attention over them; overrides the attention backend, if given.
        allocate_buddy, free_buddy: divide the slots with `region_allocator="buddy"`.
        slot_mapping: positions to slots, through a block table.
        pad_block_tables: a step's block tables as one array.
        free_queue: makes the queue of a pool's free blocks.
        write_kv: stores a step's keys and values in one layer's cache; overrides the attention backend's,
            if given.
        fork: lets a second table share a table's blocks.
        append: makes the slots of a sequence's next tokens writable, and says what to copy first.
        free: gives up a table's blocks.
        copy_blocks: does a step's block copies, in all layers; overrides the attention backend's, if
            given.
        attention: overrides the attention backend, if given.
        capture: captures decode steps, to be replayed; overrides CUDA graphs, if given.
        hash_function: overrides `prefix_caching_hash_algo`, if given.
    """

    bytes_per_token: BytesPerToken = bytes_per_token
    num_blocks_that_fit: NumBlocksThatFit = num_blocks_that_fit
    allocate_first_fit: AllocateFirstFit = allocate_first_fit
    free_first_fit: FreeFirstFit = free_first_fit
    write_region: WriteRegion = write_region
    read_region: ReadRegion = read_region
    attend_region: AttendOneFn | None = None
    allocate_buddy: AllocateBuddy = allocate_buddy
    free_buddy: FreeBuddy = free_buddy
    slot_mapping: SlotMapping = slot_mapping
    pad_block_tables: PadBlockTables = pad_block_tables
    free_queue: MakeFreeQueue = full_queue
    write_kv: WriteKV | None = None
    fork: Fork = fork
    append: Append = append
    free: Free = free
    copy_blocks: CopyBlocks | None = None
    attention: AttentionFn | None = None
    capture: Capture | None = None
    hash_function: HashFunction | None = None
