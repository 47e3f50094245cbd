"""Random histories with swapping: blocks come back from CPU memory with the same contents.

As in the engine, a step is planned first and executed afterwards (swaps out, swaps in, copies, writes). A
request may own several sequences.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minipaged.kv.block_pool import BlockPool
from minipaged.kv.swap import SwapSpace
from minipaged.request import Request, Sequence
from tests.kv.sequences import make_request, state
from tests.kv.swap_model import Plan, SwapModel, blocks_to_go_on, sharing
from tests.long_tests import examples

TOKENS = st.integers(0, 1)


class SwapMachine(SwapModel, RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(8, 20),
        num_cpu_blocks=st.sampled_from([3, 6, 19, 19, 19]),
        block_size=st.integers(1, 3),
        caching=st.booleans(),
        tokens=st.lists(TOKENS, min_size=2, max_size=6),
        sampled=st.lists(st.lists(TOKENS, min_size=1, max_size=2), min_size=1, max_size=3),
    )
    def start(
        self,
        num_blocks: int,
        num_cpu_blocks: int,
        block_size: int,
        caching: bool,
        tokens: list[int],
        sampled: list[list[int]],
    ) -> None:
        """Begin a request with a computed prompt, and samples that share it and have not written yet."""
        self.set_up(num_blocks, num_cpu_blocks, block_size, caching=caching)
        self.arrive(tokens)
        self.execute(fails=False)
        [request] = self.running
        [parent] = request.sequences
        for one in sampled:
            child = Sequence(tokens, len(request.sequences))
            self.manager.fork(parent, child, len(tokens))
            child.token_ids += one
            request.sequences.append(child)

    # Planning a step

    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=6))
    def arrive(self, tokens: list[int]) -> None:
        self.close()
        request = make_request(Sequence(tokens))
        [seq] = request.sequences
        hits = self.manager.find_prefix(seq, None)
        if self.manager.can_admit(request, hits):
            self.manager.adopt_prefix(seq, hits)
            self.running.append(request)
            assert self.compute(request, seq, len(tokens))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        self.plan_all(data.draw(st.sampled_from(self.running)), data)

    def plan_all(self, request: Request, data: st.DataObject) -> None:
        """Each sequence of the request may get new tokens, and computes at least one."""
        for seq in request.unfinished:
            if not self.is_planned(seq):
                seq.token_ids += data.draw(st.lists(TOKENS, max_size=2))
                if seq.num_computed_tokens < seq.num_tokens:
                    chunk = st.integers(seq.num_computed_tokens + 1, seq.num_tokens)
                    self.compute(request, seq, data.draw(chunk))

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        sampled=st.lists(TOKENS, max_size=2),
        parent_ends=st.booleans(),
    )
    def fork(self, data: st.DataObject, count: int, sampled: list[int], parent_ends: bool) -> None:
        request = data.draw(st.sampled_from(self.running))
        parent = data.draw(st.sampled_from(request.unfinished))
        if self.is_planned(parent) or len(request.unfinished) > 3:
            return
        for _ in range(count):
            length = data.draw(st.integers(1, parent.num_computed_tokens))
            child = Sequence(parent.token_ids[:length], len(request.sequences))
            self.manager.fork(parent, child, length)
            child.token_ids += sampled
            request.sequences.append(child)
        if parent_ends:  # like a beam without children
            self.manager.free(parent)
            parent.finish_reason = "length"

    @precondition(lambda self: self.running and not self.plan.closed)
    @rule(data=st.data(), planned=st.booleans())
    def swap_out(self, data: st.DataObject, planned: bool) -> None:
        request = data.draw(st.sampled_from(self.running))
        if planned:  # it had blocks and copies for this step; then another request needs the blocks
            self.plan_all(request, data)
        withdrawn = self.withdraw(request)
        moved_from = {c.target: c.source for item in withdrawn for c in item.copies}
        size = self.manager.block_size
        tables = [list(seq.block_table)[: -(-seq.num_computed_tokens // size)] for seq in request.unfinished]
        num_saved = len({block for table in tables for block in table})
        fits = num_saved <= self.num_free_on_cpu()
        before = state(self.manager, *request.sequences)
        swaps = self.space.swap_out(request, moved_from)
        assert (swaps is not None) == fits
        if swaps is None:
            assert state(self.manager, *request.sequences) == before
            if withdrawn:  # its tables are not as before that
                self.drop(request)
            return
        assert len(swaps) == num_saved, "what is shared is saved once"
        assert sharing([seq.cpu_block_table for seq in request.unfinished]) == sharing(tables)
        self.plan.outs += swaps
        self.plan.touched.append(request)
        self.running.remove(request)
        self.swapped.append(request)

    @precondition(lambda self: self.swapped)
    @rule(data=st.data(), at_once=st.booleans())
    def swap_in(self, data: st.DataObject, at_once: bool) -> None:
        self.close()
        request = data.draw(st.sampled_from(self.swapped))
        tables = [list(seq.cpu_block_table) for seq in request.unfinished]
        size = self.manager.block_size
        wanted = blocks_to_go_on(request, size)
        assert SwapSpace(BlockPool(wanted + 1), 0, size).can_swap_in(request)
        assert not SwapSpace(BlockPool(wanted), 0, size).can_swap_in(request), "a pool with one block less"
        fits = wanted <= self.num_free()
        assert self.space.can_swap_in(request) == fits
        if not fits:
            return
        self.plan.ins += self.space.swap_in(request)
        assert sharing([list(seq.block_table) for seq in request.unfinished]) == sharing(tables)
        self.plan.touched.append(request)
        self.swapped.remove(request)
        self.running.append(request)
        for seq in request.unfinished:
            if at_once and seq.num_computed_tokens < seq.num_tokens:
                assert self.compute(request, seq, seq.num_tokens), "can_swap_in promised these blocks"

    # Executing it

    @precondition(lambda self: self.plan != Plan())
    @rule(fails=st.sampled_from([False] * 9 + [True]))
    def execute(self, fails: bool) -> None:
        self.close()
        if fails:
            self.roll_back()
        else:
            self.tensors.swap(self.plan.outs, self.plan.ins)
            self.tensors.copy([copy for item in self.plan.items for copy in item.copies])
            for item in self.plan.items:
                seq = item.seq
                self.tensors.write(list(seq.block_table), seq.token_ids, seq.num_computed_tokens, item.end)
                seq.num_computed_tokens = item.end
        self.plan = Plan()
        self.spoil()

    # Between two steps

    @precondition(lambda self: (self.running or self.swapped) and self.plan == Plan())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """One sample ends, or a request is aborted."""
        request = data.draw(st.sampled_from(self.running + self.swapped))
        if request in self.running and data.draw(st.booleans()):
            seq = data.draw(st.sampled_from(request.unfinished))
            self.manager.free(seq)
            seq.finish_reason = "length"
            if not request.is_finished:
                self.spoil()
                return
        self.drop(request)
        self.spoil()

    # What must hold

    @invariant()
    def every_sequence_has_its_own_tokens(self) -> None:
        if self.plan != Plan():
            return
        for request in self.running:
            for seq in request.unfinished:
                assert self.tensors.holds(list(seq.block_table), seq.token_ids, seq.num_computed_tokens)
        for request in self.swapped:
            for seq in request.unfinished:
                assert self.tensors.cpu_holds(seq.cpu_block_table, seq.token_ids, seq.num_computed_tokens)

    @invariant()
    def both_pools_add_up(self) -> None:
        pool, references, on_cpu = self.manager.pool, self.references(), self.cpu_blocks()
        assert pool.ref_cnt == [1, *(references[b] for b in range(1, pool.num_blocks))]
        assert sorted(pool.free_queue) == [b for b in range(1, pool.num_blocks) if not references[b]]
        assert len(on_cpu) == len(set(on_cpu)), "two requests have one CPU block"
        assert self.space.num_free + len(on_cpu) == self.space.num_cpu_blocks
        for request in self.running:
            for seq in request.sequences:
                assert not seq.cpu_block_table, "its blocks are in one place"
                assert len(set(seq.block_table)) == len(seq.block_table)
        for request in self.swapped:
            for seq in request.sequences:
                assert not len(seq.block_table), "its blocks are in one place"
                assert bool(seq.cpu_block_table) != seq.is_finished
        self.manager.check_invariants(self.running + self.swapped)
        self.space.check_invariants(self.running + self.swapped)


SwapMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestSwap = SwapMachine.TestCase
