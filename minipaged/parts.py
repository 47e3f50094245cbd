"""Parts: the functions of the engine that can be replaced.

Each field holds one function. Another function with the same signature can replace it, so that a simple
version, or the reader's own, runs inside the real engine. An engine gets its parts when it is created.
No module is patched, so two engines can run with different parts.

The interface of a replaceable function is called its *seam*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from minipaged.attention.metadata import AttentionFn
from minipaged.attention.own_decode import DecodeFn, SplitDecodeFn
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
    """`KVShape.bytes_per_token` as a function."""
    return shape.bytes_per_token


Needs = dict[str, tuple[str | bool, ...]]
"""For each setting that a part depends on, the values with which the engine calls the part."""

_MEMORY_PLAN: Needs = {"kv_layout": ("paged", "contiguous")}
_PAGED: Needs = {"kv_layout": ("paged",)}
_CONTIGUOUS: Needs = {"kv_layout": ("contiguous",)}
_FIRST_FIT: Needs = {**_CONTIGUOUS, "region_allocator": ("first_fit",)}
_BUDDY: Needs = {**_CONTIGUOUS, "region_allocator": ("buddy",)}
_CAPTURED: Needs = {**_PAGED, "enforce_eager": (False,), "attention_backend": ("triton", "auto")}
_PREFIX_CACHE: Needs = {**_PAGED, "enable_prefix_caching": (True,)}


@refuses_unknown_names("part", ConfigError)
@dataclass(frozen=True)
class Parts:
    """The replaceable functions of an engine. The defaults are the engine's own.

    Attributes:
        bytes_per_token: returns the bytes of one token's keys and values, for the memory plan.
        num_blocks_that_fit: returns how many blocks fit into some memory, for the memory plan.
        allocate_first_fit, free_first_fit: divide the slots of a contiguous cache into regions.
        write_region: stores a sequence's new keys and values in its region.
        read_region: returns a sequence's keys and values, as views of its region.
        attend_region: computes attention over a region; overrides the attention backend, if given.
        allocate_buddy, free_buddy: the same, for an engine with `region_allocator="buddy"`.
        slot_mapping: translates positions into slots, through a block table.
        pad_block_tables: puts a step's block tables into one array.
        free_queue: makes the queue of a pool's free blocks.
        write_kv: stores a step's keys and values in one layer's cache; overrides the attention backend's
            function, if given.
        fork: makes a second table that shares a table's blocks.
        append: makes the slots of a sequence's next tokens writable, and returns the block copies that must
            be done first.
        free: frees a table's blocks.
        copy_blocks: does a step's block copies, in all layers; overrides the attention backend's function,
            if given.
        attention: overrides the attention backend, if given.
        paged_decode: if given, computes the attention of sequences with one query token. `attention` or the
            backend computes the attention of all other sequences.
        paged_decode_split: if given, computes this attention in a step that has only one such sequence. It
            divides the sequence into several parts.
        capture: captures decode steps and replays them; overrides CUDA graphs, if given.
        hash_function: overrides `prefix_caching_hash_algo`, if given.
    """

    bytes_per_token: BytesPerToken = field(default=bytes_per_token, metadata=_MEMORY_PLAN)
    num_blocks_that_fit: NumBlocksThatFit = field(default=num_blocks_that_fit, metadata=_MEMORY_PLAN)
    allocate_first_fit: AllocateFirstFit = field(default=allocate_first_fit, metadata=_FIRST_FIT)
    free_first_fit: FreeFirstFit = field(default=free_first_fit, metadata=_FIRST_FIT)
    write_region: WriteRegion = field(default=write_region, metadata=_CONTIGUOUS)
    read_region: ReadRegion = field(default=read_region, metadata=_CONTIGUOUS)
    attend_region: AttendOneFn | None = field(default=None, metadata=_CONTIGUOUS)
    allocate_buddy: AllocateBuddy = field(default=allocate_buddy, metadata=_BUDDY)
    free_buddy: FreeBuddy = field(default=free_buddy, metadata=_BUDDY)
    slot_mapping: SlotMapping = field(default=slot_mapping, metadata=_PAGED)
    pad_block_tables: PadBlockTables = field(default=pad_block_tables, metadata=_PAGED)
    free_queue: MakeFreeQueue = field(default=full_queue, metadata=_PAGED)
    write_kv: WriteKV | None = field(default=None, metadata=_PAGED)
    fork: Fork = field(default=fork, metadata=_PAGED)
    append: Append = field(default=append, metadata=_PAGED)
    free: Free = field(default=free, metadata=_PAGED)
    copy_blocks: CopyBlocks | None = field(default=None, metadata=_PAGED)
    attention: AttentionFn | None = field(default=None, metadata=_PAGED)
    paged_decode: DecodeFn | None = field(default=None, metadata=_PAGED)
    paged_decode_split: SplitDecodeFn | None = field(default=None, metadata=_PAGED)
    capture: Capture | None = field(default=None, metadata=_CAPTURED)
    hash_function: HashFunction | None = field(default=None, metadata=_PREFIX_CACHE)
