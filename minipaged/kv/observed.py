"""The block manager and the swap space that emit events. An engine uses them if it has an observer."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.events import (
    AllBlocksCleared,
    BlockCopied,
    BlockRemoved,
    BlocksReleased,
    BlocksSwappedIn,
    BlocksSwappedOut,
    BlocksTaken,
    BlockStored,
    BlocksTouched,
    CpuBlocksFreed,
    PrefixHit,
    RequestResumed,
)
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.copy_on_write import BlockCopy
from minipaged.kv.event_stream import Observed
from minipaged.kv.prefix_cache import CachedBlock
from minipaged.kv.swap import BlockSwap, SwapSpace
from minipaged.request import Request, Sequence


def short_hash(block_hash: bytes) -> str:
    """A block hash as events show it: its first 8 bytes in hexadecimal."""
    return block_hash[:8].hex()


class ObservedBlockManager(BlockManager, Observed):
    """A `BlockManager` that emits events for what it does."""

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        is_admitted = super().admit(request, hits)
        if is_admitted:
            self.events.admitted(request)
        return is_admitted

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        num_before = len(seq.block_table)
        copies = super().append(seq, num_tokens)
        for copy in copies or ():
            index = list(seq.block_table).index(copy.target)
            self.events.emit(BlockCopied(self.events.id_of(seq), index, copy.source, copy.target))
        if len(seq.block_table) > num_before:
            taken = tuple(seq.block_table.ids[num_before:].tolist())
            self.events.emit(BlocksTaken(self.events.id_of(seq), taken))
        return copies

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        super().fork(parent, child, num_tokens)
        self.events.forked(parent, child)

    def free(self, seq: Sequence) -> None:
        released, was_computed = tuple(seq.block_table), seq.num_computed_tokens > 0
        super().free(seq)
        if released or was_computed:
            self.events.emit(BlocksReleased(self.events.id_of(seq), released))

    def adopt_prefix(self, seq: Sequence, hits: list[CachedBlock]) -> None:
        super().adopt_prefix(seq, hits)
        if hits:
            seq_id = self.events.id_of(seq)
            self.events.emit(PrefixHit(seq_id, seq.num_computed_tokens))
            self.events.emit(BlocksTouched(seq_id, tuple(hit.block_id for hit in hits)))

    def cache_full_blocks(self, seq: Sequence, num_tokens: int, cache_salt: str | None) -> None:
        filled = range(len(seq.prefix_ids), num_tokens // self.block_size)
        uncached = [i for i in filled if not self.pool.is_cached(seq.block_table[i])]
        super().cache_full_blocks(seq, num_tokens, cache_salt)
        for i in uncached if self.caches_prefixes else ():
            parent = short_hash(seq.block_hashes[i - 1]) if i else None
            block_hash = short_hash(seq.block_hashes[i])
            self.events.emit(BlockStored(seq.block_table[i], self.events.id_of(seq), i, block_hash, parent))

    def reset_prefix_cache(self) -> None:
        super().reset_prefix_cache()
        self.events.emit(AllBlocksCleared())

    def cached_hashes(self) -> dict[int, str]:
        """The cached blocks, each with its hash."""
        contents = {
            block_id: self.prefix_cache.contents(block_id) for block_id in self.prefix_cache.block_ids()
        }
        return {block_id: short_hash(each.block_hash) for block_id, each in sorted(contents.items())}

    def _evict(self, block_id: int) -> None:
        block_hash = self.prefix_cache.contents(block_id).block_hash
        super()._evict(block_id)
        self.events.emit(BlockRemoved(block_id, short_hash(block_hash)))


class ObservedSwapSpace(SwapSpace, Observed):
    """A `SwapSpace` that emits events for what it does."""

    def swap_out(self, request: Request, moved_from: Mapping[int, int]) -> list[BlockSwap] | None:
        tables = {seq: tuple(seq.block_table) for seq in request.sequences if len(seq.block_table)}
        swaps = super().swap_out(request, moved_from)
        if swaps is not None:
            for seq, table in tables.items():
                seq_id = self.events.id_of(seq)
                self.events.emit(BlocksSwappedOut(seq_id, tuple(seq.cpu_block_table)))
                self.events.emit(BlocksReleased(seq_id, table))
        return swaps

    def swap_in(self, request: Request) -> list[BlockSwap]:
        saved = {seq: tuple(seq.cpu_block_table) for seq in request.sequences if seq.cpu_block_table}
        swaps = super().swap_in(request)
        for seq, cpu_block_ids in saved.items():
            seq_id = self.events.id_of(seq)
            self.events.emit(BlocksSwappedIn(seq_id, tuple(seq.block_table), cpu_block_ids))
        self.events.emit(RequestResumed(request.request_id, 0))
        return swaps

    def discard(self, request: Request) -> None:
        # `swap_in` also calls this at its end. Its sequences have blocks again, so they have lost nothing.
        lost = [seq for seq in request.sequences if seq.cpu_block_table and not len(seq.block_table)]
        super().discard(request)
        for seq in lost:
            self.events.emit(CpuBlocksFreed(self.events.id_of(seq)))
