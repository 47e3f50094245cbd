"""The rules for blocks, block tables, hashes and CPU blocks."""

from __future__ import annotations

from collections import Counter

from minipaged.errors import TraceError
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
    EngineReset,
    Event,
    PrefixHit,
    SequenceForked,
    StepFailed,
    StepFinished,
    StepPlanned,
)
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.size import blocks_needed
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedSequence

_FOR_PLANNING = (
    BlocksTaken,
    BlocksTouched,
    BlockCopied,
    BlockStored,
    BlocksSwappedOut,
    BlocksSwappedIn,
    PrefixHit,
)


def require(holds: bool, otherwise: str) -> None:
    """Raise an error with the message `otherwise`, unless a rule holds.

    Raises:
        TraceError: it does not hold.
    """
    if not holds:
        raise TraceError(otherwise)


class BlockRules:
    """The rules for blocks. Only a paged cache has events about blocks, apart from forks and releases."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._size = replay.engine.block_size
        self._is_paged = replay.engine.kv_layout == "paged"
        self._next: tuple[type[Event], int] | None = None  # what must come next, and its sequence
        self._new_step()

    def _new_step(self) -> None:
        self._stored: set[int] = set()  # blocks that this step will fill
        self._hits: Counter[int] = Counter()  # hits on blocks since the last step
        self._overwritten: set[int] = set()  # used blocks that have lost their hash
        self._swapped_in: dict[int, int] = {}  # CPU block -> block

    @staticmethod
    def is_for_planning(event: Event) -> bool:
        """Whether the event can only come while a step is planned."""
        return isinstance(event, _FOR_PLANNING)

    def before(self, event: Event, *, in_results: bool) -> None:
        """Check an event. `in_results` says whether a step's results are being recorded."""
        if self._next is not None:
            kind, seq_id = self._next
            follows = isinstance(event, kind) and getattr(event, "seq_id", None) == seq_id
            require(follows, f"{kind.__name__} of sequence {seq_id} is missing")
            self._next = None
        elif isinstance(event, BlocksTouched):
            require(False, "no prefix hit came before")
        match event:
            case BlocksTaken():
                self._running(event.seq_id)
                require(len(event.block_ids) > 0, "no block is taken")
                self._check_free(event.block_ids)
            case BlocksTouched():
                self._check_hit(event)
            case PrefixHit():
                self._check_prefix_hit(event)
            case BlockCopied():
                self._check_copy(event)
            case SequenceForked():
                self._check_fork(event)
            case BlocksReleased():
                self._check_release(event, in_results)
            case BlockStored():
                self._check_store(event)
            case BlockRemoved():
                contents = self._replay.pool.cached.get(event.block_id)
                require(contents is not None, f"block {event.block_id} is not cached")
                known = contents.block_hash if contents is not None else ""
                require(known in ("", event.block_hash), f"its hash is {known}")
                if self._replay.pool.references(event.block_id):
                    self._overwritten.add(event.block_id)
            case AllBlocksCleared():
                cached = sorted(self._replay.pool.cached)
                require(not cached, f"blocks {cached} are still cached")
            case BlocksSwappedOut() | BlocksSwappedIn() | CpuBlocksFreed():
                self._check_swap(event)
            case StepPlanned():
                self._check_plan(event)

    def after(self, event: Event) -> None:
        """Remember what the event implies for later events."""
        match event:
            case PrefixHit():
                self._next = (BlocksTouched, event.seq_id)
            case BlocksSwappedOut():
                self._next = (BlocksReleased, event.seq_id)
            case BlocksTouched():
                self._hits.update(event.block_ids)
            case BlockStored():
                self._stored.add(event.block_id)
            case BlocksReleased():
                self._overwritten.difference_update(event.block_ids)
            case AllBlocksCleared():
                self._overwritten.clear()
            case StepFinished() | StepFailed() | EngineReset():
                self._new_step()

    def check_counts(self) -> None:
        """free + used + null = total, and each `ref_cnt` is the number of tables that name the block.

        Raises:
            TraceError: one of the two does not hold.
        """
        pool = self._replay.pool
        if not self._is_paged:
            return
        named: Counter[int] = Counter({NULL_BLOCK: 1})
        for request in self._replay.unfinished.values():
            for seq in request.sequences:
                named.update(seq.block_ids)
        for block_id, count in enumerate(pool.ref_cnt):
            tables = named[block_id]
            require(count == tables, f"block {block_id} has ref_cnt {count}, and {tables} tables name it")
        used = sum(1 for block_id in named if block_id != NULL_BLOCK)
        total = self._replay.engine.num_blocks
        free = pool.num_free
        require(free + used + 1 == total, f"{free} free + {used} used + 1 null block are not {total}")

    # Single events

    def _running(self, seq_id: int) -> ReplayedSequence:
        seq = self._replay.sequence(seq_id)
        require(seq.request.status == "running", f"the request of sequence {seq_id} does not run")
        require(seq.finish_reason is None, f"sequence {seq_id} has finished")
        return seq

    def _check_free(self, block_ids: tuple[int, ...]) -> None:
        require(len(set(block_ids)) == len(block_ids), "a block is taken twice")
        for block_id in block_ids:
            count = self._replay.pool.references(block_id)
            require(count == 0, f"block {block_id} is not free: it has ref_cnt {count}")
            require(block_id not in self._replay.pool.cached, f"block {block_id} is taken, and still cached")

    def _check_prefix_hit(self, event: PrefixHit) -> None:
        seq = self._replay.sequence(event.seq_id)
        require(not seq.holds_memory and seq.num_computed_tokens == 0, "the sequence has begun already")
        whole = event.num_tokens % self._size == 0 and 0 < event.num_tokens < seq.num_tokens
        require(whole, f"{event.num_tokens} of {seq.num_tokens} tokens are no prefix of whole blocks")

    def _check_hit(self, event: BlocksTouched) -> None:
        seq, cached = self._replay.sequence(event.seq_id), self._replay.pool.cached
        hit = seq.num_computed_tokens // self._size
        require(len(event.block_ids) == hit, f"the prefix hit was on {hit} blocks")
        parent = None
        for i, block_id in enumerate(event.block_ids):
            contents = cached.get(block_id)
            require(contents is not None, f"block {block_id} is not cached")
            if contents is None or not contents.block_hash:
                parent = None
                continue  # its `BlockStored` event was lost in an interrupt
            tokens = tuple(seq.token_ids[i * self._size : (i + 1) * self._size])
            require(contents.token_ids == tokens, f"block {block_id} holds other tokens than the sequence")
            follows = parent is None or contents.parent_block_hash == parent
            require(follows, f"block {block_id} belongs after another block")
            parent = contents.block_hash

    def _check_copy(self, event: BlockCopied) -> None:
        table = self._running(event.seq_id).block_ids
        entry = table[event.index] if 0 <= event.index < len(table) else None
        require(entry == event.source, f"entry {event.index} of the table is {entry}")
        count = self._replay.pool.references(event.source)
        require(count > 1, f"block {event.source} has ref_cnt {count}: it need not be copied")
        self._check_free((event.target,))

    def _check_fork(self, event: SequenceForked) -> None:
        parent, child = self._running(event.parent), self._replay.sequences.get(event.child)
        computed = 0 < event.num_tokens <= parent.num_computed_tokens
        require(computed, "the parent has not computed these tokens")
        if child is None:
            require(event.child == len(self._replay.sequences), "sequence ids count up from 0")
            taken = {s.index for s in parent.request.sequences if s.num_computed_tokens or s.finish_reason}
            free = 0 <= event.index < parent.request.added.num_seqs and event.index not in taken
            require(free, f"number {event.index} is taken, or too high")
        else:
            require(child.request is parent.request, "it is a sequence of another request")
            require(child.index == event.index, f"sequence {event.child} has number {child.index}")
            begun = child.holds_memory or child.num_computed_tokens or child.finish_reason
            require(not begun, f"sequence {event.child} has begun already")
            alike = child.token_ids[: event.num_tokens] == parent.token_ids[: event.num_tokens]
            require(alike, "the two sequences begin with different tokens")
        num_blocks = blocks_needed(event.num_tokens, self._size) if self._is_paged else 0
        shared = tuple(parent.block_ids[:num_blocks])
        require(event.block_ids == shared, f"the parent's blocks are {shared}")

    def _check_release(self, event: BlocksReleased, in_results: bool) -> None:
        seq = self._replay.sequence(event.seq_id)
        table = tuple(seq.block_ids)
        require(event.block_ids == table, f"its block table is {table}")
        require(bool(table) or seq.num_computed_tokens > 0, "the sequence had nothing to release")
        is_sample = in_results and not seq.request.added.is_beam_search
        require(not is_sample or seq.finish_reason is not None, "a sequence goes on, and loses its blocks")

    def _check_store(self, event: BlockStored) -> None:
        seq, cached = self._running(event.seq_id), self._replay.pool.cached
        require(self._replay.engine.enable_prefix_caching, "the engine caches no prefixes")
        entry = seq.block_ids[event.index] if 0 <= event.index < len(seq.block_ids) else None
        require(entry == event.block_id, f"entry {event.index} of the table is {entry}")
        require(event.block_id not in cached, f"block {event.block_id} is cached already")
        full = (event.index + 1) * self._size <= seq.num_tokens
        require(full, f"sequence {event.seq_id} does not fill its block {event.index}")
        is_first = event.index == 0
        require(is_first == (event.parent_block_hash is None), "only a first block has no parent")
        before = None if is_first else cached.get(seq.block_ids[event.index - 1])
        if before is not None and before.block_hash:
            follows = event.parent_block_hash == before.block_hash
            require(follows, f"the block before has hash {before.block_hash}")

    def _check_swap(self, event: BlocksSwappedOut | BlocksSwappedIn | CpuBlocksFreed) -> None:
        seq = self._replay.sequence(event.seq_id)
        if isinstance(event, CpuBlocksFreed):
            require(len(seq.cpu_block_ids) > 0, "the sequence has no CPU blocks")
            return
        computed = blocks_needed(seq.num_computed_tokens, self._size)
        num_cpu_blocks = self._replay.engine.num_cpu_blocks
        known = all(0 <= block < num_cpu_blocks for block in event.cpu_block_ids)
        require(known, f"there are {num_cpu_blocks} CPU blocks")
        require(len(event.cpu_block_ids) == computed, f"{computed} blocks have computed tokens")
        if isinstance(event, BlocksSwappedOut):
            require(seq.request.status in ("preempted", "swapped"), "the request is not preempted")
            own = {block for each in seq.request.sequences for block in each.cpu_block_ids}
            others = {
                block
                for request in self._replay.unfinished.values()
                if request is not seq.request
                for each in request.sequences
                for block in each.cpu_block_ids
            }
            both = sorted(others & {*own, *event.cpu_block_ids})
            require(not both, f"CPU blocks {both} belong to another request")
            return
        require(seq.cpu_block_ids == event.cpu_block_ids, f"its CPU blocks are {seq.cpu_block_ids}")
        require(not seq.block_ids, "the sequence has blocks already")
        require(len(event.block_ids) == len(event.cpu_block_ids), "not one block for each CPU block")
        new = []
        for block_id, cpu_block in zip(event.block_ids, event.cpu_block_ids, strict=True):
            if cpu_block in self._swapped_in:
                require(self._swapped_in[cpu_block] == block_id, f"CPU block {cpu_block} went elsewhere")
            else:
                self._swapped_in[cpu_block] = block_id
                new.append(block_id)
        self._check_free(tuple(new))

    def _check_plan(self, event: StepPlanned) -> None:
        """Check that the tables cover the step's tokens, and that no shared or cached block is written."""
        if not self._is_paged:
            return
        evicted = sorted(self._replay.pool.evicted)
        require(not evicted, f"blocks {evicted} were evicted, and not handed out")
        pool, written = self._replay.pool, set[int]()
        for seq_id, start, num_tokens in zip(event.seq_ids, event.starts, event.num_tokens, strict=True):
            table, end = self._replay.sequence(seq_id).block_ids, start + num_tokens
            covered = len(table) * self._size
            require(end <= covered, f"the table of sequence {seq_id} covers {covered} of {end} tokens")
            for i in range(start // self._size, blocks_needed(end, self._size)):
                block_id = table[i]
                is_filled = (i + 1) * self._size <= end and block_id in self._stored
                # Another request of the same step may hit a block that this step fills.
                sharers = pool.references(block_id) - (self._hits[block_id] if is_filled else 0)
                is_cached, is_full = block_id in pool.cached, (i + 1) * self._size <= end
                writes = f"sequence {seq_id} writes block {block_id}"
                require(sharers == 1, f"{writes}, which {sharers} tables share")
                require(is_filled or not is_cached, f"{writes}, which is cached")
                missing = is_full and self._replay.engine.enable_prefix_caching and not is_cached
                require(not missing, f"{writes} to its end, and does not cache it")
                written.add(block_id)
        left = sorted(self._overwritten - written)
        require(not left, f"blocks {left} lost their hashes, and are not written")
