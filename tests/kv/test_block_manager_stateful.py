"""Random histories of a BlockManager: after each step every sequence must read back its own tokens.

The model has no hashes, queues or prefix ids. It counts how many tables name each block, records the contents
with which a block was cached, and reads a simulated tensor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minipaged.kv.prefix_hash import HashInput
from minipaged.request import Request, Sequence
from tests.kv.sequences import make_manager, make_request, state
from tests.kv.simulated_tensor import SimulatedTensor, texts
from tests.long_tests import examples

TOKENS = st.integers(0, 1)
SALTS = st.sampled_from([None, None, None, "red"])


def constant(value: HashInput, /) -> bytes:
    return b"every block"


@dataclass(eq=False)
class Tracked:
    """One sequence, and how many of its leading blocks a new sequence must be able to find."""

    request: Request
    findable: int = 0

    @property
    def seq(self) -> Sequence:
        return self.request.sequences[0]

    @property
    def salt(self) -> str | None:
        return self.request.cache_salt


class BlockManagerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(2, 10),
        block_size=st.integers(1, 3),
        caching=st.sampled_from(["off", "on", "on", "colliding"]),
    )
    def start(self, num_blocks: int, block_size: int, caching: str) -> None:
        hash_fn = constant if caching == "colliding" else None
        self.manager = make_manager(num_blocks, block_size, caching=caching != "off", hash_fn=hash_fn)
        self.caching = caching != "off"
        self.tensor = SimulatedTensor(block_size)
        self.alive: list[Tracked] = []
        self.said: dict[int, tuple[str | None, tuple[int, ...]]] = {}  # for each cached block: salt and text

    def pick(self, data: st.DataObject) -> Tracked:
        return data.draw(st.sampled_from(self.alive))

    def references(self) -> Counter[int]:
        return Counter(b for tracked in self.alive for b in tracked.seq.block_table)

    def free_blocks(self) -> int:
        return self.manager.pool.num_blocks - 1 - len(self.references())

    # What can happen

    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=9), salt=SALTS)
    def arrive(self, tokens: list[int], salt: str | None) -> None:
        seq, size = Sequence(tokens), self.manager.block_size
        request = make_request(seq, cache_salt=salt)
        hits = self.manager.find_prefix(seq, salt)
        for i, hit in enumerate(hits):
            text = tuple(tokens[: (i + 1) * size])
            assert self.said[hit.block_id] == (salt, text)
            assert self.tensor.read_block(hit.block_id) == texts(tokens, len(text))[-size:]
        assert len(hits) <= (len(tokens) - 1) // size
        for other in self.alive:
            if other.salt == salt:
                shortest = min(len(tokens) - 1, other.seq.num_tokens)
                agree = max(i for i in range(shortest + 1) if tokens[:i] == other.seq.token_ids[:i])
                assert len(hits) >= min(other.findable, agree // size)
        revived = sum(1 for hit in hits if hit.block_id not in self.references())
        fits = -(-len(tokens) // size) - len(hits) + revived <= self.free_blocks()
        assert self.manager.can_admit(request, hits) == fits
        if fits:
            self.manager.adopt_prefix(seq, hits)
            self.alive.append(Tracked(request, findable=len(hits)))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), sampled=st.lists(TOKENS, max_size=3), fails=st.sampled_from([False] * 4 + [True]))
    def compute(self, data: st.DataObject, sampled: list[int], fails: bool) -> None:
        tracked = self.pick(data)
        seq, pool, size = tracked.seq, self.manager.pool, self.manager.block_size
        seq.token_ids += sampled
        start = seq.num_computed_tokens
        if start == seq.num_tokens:
            return
        end = data.draw(st.integers(start + 1, seq.num_tokens))
        table, references = list(seq.block_table), self.references()
        shared = [b for b in table[start // size : -(-end // size)] if references[b] > 1]
        fits = len(shared) + max(0, -(-end // size) - len(table)) <= self.free_blocks()
        before = state(self.manager, *(other.seq for other in self.alive))

        copies = self.manager.append(seq, end - start)
        if copies is None:
            assert not fits
            assert state(self.manager, *(other.seq for other in self.alive)) == before
            return
        assert fits
        assert [copy.source for copy in copies] == shared
        assert len(seq.block_table) == max(len(table), -(-end // size))
        for block_id in list(seq.block_table)[start // size : -(-end // size)]:
            assert pool.ref_cnt[block_id] == 1, "a shared block is about to be written"
            assert not pool.is_cached(block_id), "a cached block is about to be written"
        self.drop_evicted()
        self.manager.cache_full_blocks(seq, end, tracked.salt)
        if fails:  # as after a failed forward pass: nothing was copied or written
            self.manager.forget_uncomputed(seq)
            self.manager.free(seq)
            self.alive.remove(tracked)
            return
        self.tensor.copy(copies)
        self.tensor.write(seq.block_table.ids.tolist(), seq.token_ids, start, end)
        seq.num_computed_tokens = end
        for i in range(start // size, end // size):
            if self.caching:
                self.said[seq.block_table[i]] = (tracked.salt, tuple(seq.token_ids[: (i + 1) * size]))
        if self.caching and tracked.findable == start // size:
            tracked.findable = end // size

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), sampled=st.lists(TOKENS, max_size=2), parent_ends=st.booleans())
    def fork(self, data: st.DataObject, sampled: list[int], parent_ends: bool) -> None:
        parent = self.pick(data)
        if parent.seq.num_computed_tokens == 0:
            return
        length = data.draw(st.integers(1, parent.seq.num_computed_tokens))
        child = Sequence(parent.seq.token_ids[:length], index=1)
        self.manager.fork(parent.seq, child, length)
        assert child.num_computed_tokens == length
        child.token_ids += sampled
        tracked = Tracked(make_request(child, cache_salt=parent.salt))
        tracked.findable = min(parent.findable, length // self.manager.block_size)
        self.alive.append(tracked)
        if parent_ends:  # like a beam without children
            self.manager.free(parent.seq)
            self.alive.remove(parent)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        tracked = self.pick(data)
        self.manager.free(tracked.seq)
        self.alive.remove(tracked)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """Free a sequence that continues later: it looks up its own beginning in the cache."""
        tracked = self.pick(data)
        self.manager.free(tracked.seq)
        hits = self.manager.find_prefix(tracked.seq, tracked.salt)
        self.manager.adopt_prefix(tracked.seq, hits)
        tracked.findable = len(hits)

    @rule()
    def reset(self) -> None:
        self.manager.reset_prefix_cache()
        for tracked in self.alive:
            tracked.findable = 0

    # What must hold

    def drop_evicted(self) -> None:
        self.said = {b: s for b, s in self.said.items() if self.manager.pool.is_cached(b)}

    @invariant()
    def every_sequence_reads_its_own_tokens(self) -> None:
        for tracked in self.alive:
            seq = tracked.seq
            read = self.tensor.read(seq.block_table.ids.tolist(), seq.num_computed_tokens)
            assert read == texts(seq.token_ids, seq.num_computed_tokens)

    @invariant()
    def cached_blocks_hold_what_was_said(self) -> None:
        self.drop_evicted()
        pool, size = self.manager.pool, self.manager.block_size
        assert set(self.said) == {b for b in range(pool.num_blocks) if pool.is_cached(b)}
        for block_id, (_, text) in self.said.items():
            assert self.tensor.read_block(block_id) == texts(text, len(text))[-size:]

    @invariant()
    def the_books_balance(self) -> None:
        pool, references = self.manager.pool, self.references()
        assert pool.ref_cnt == [1, *(references[b] for b in range(1, pool.num_blocks))]
        assert sorted(pool.free_queue) == [b for b in range(1, pool.num_blocks) if not references[b]]
        assert pool.num_free + len(references) + 1 == pool.num_blocks
        for tracked in self.alive:
            seq = tracked.seq
            assert len(seq.block_table) == -(-seq.num_computed_tokens // self.manager.block_size)
            assert len(set(seq.block_table)) == len(seq.block_table)
        self.manager.check_invariants([tracked.request for tracked in self.alive])


BlockManagerMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestBlockManager = BlockManagerMachine.TestCase
