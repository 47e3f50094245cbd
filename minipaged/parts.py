"""Parts: the engine's seams, as a value.

Each field is a piece of the engine that can be replaced by another of the same shape, so that a
simple version, or the reader's own, runs inside the real engine. An engine takes its parts when it
is made; nothing is patched, and two engines can run with different ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.attention.metadata import AttentionFn
from minipaged.kv.block_table import SlotMapping, slot_mapping
from minipaged.kv.cache import WriteKV, write_kv
from minipaged.kv.prefix_hash import HashFunction


@dataclass(frozen=True)
class Parts:
    """The pieces an engine runs with; by default its own.

    Attributes:
        slot_mapping: positions to slots, through a block table.
        write_kv: stores a step's keys and values in one layer's cache.
        attention: overrides the attention backend, if given.
        hash_function: overrides `prefix_caching_hash_algo`, if given.
    """

    slot_mapping: SlotMapping = slot_mapping
    write_kv: WriteKV = write_kv
    attention: AttentionFn | None = None
    hash_function: HashFunction | None = None
