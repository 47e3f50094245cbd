"""The model with which `test_swap_stateful` compares random histories with swapping.

The model has the tokens of each sequence, and counts how many tables name each block. The contents are in the
real tensors. Slots that no sequence may read hold a number that no token has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from minipaged.kv.cache import BlockCopy
from minipaged.kv.swap import BlockSwap, SwapSpace
from minipaged.request import Request, Sequence
from tests.kv.sequences import make_manager
from tests.kv.text_tensors import TextTensors


@dataclass(frozen=True)
class Item:
    """One sequence's part of a step: compute its tokens up to position `end - 1`."""

    request: Request
    seq: Sequence
    end: int
    copies: list[BlockCopy]


@dataclass
class Plan:
    """A step that is not executed yet. Once it is closed, it preempts no request."""

    outs: list[BlockSwap] = field(default_factory=list)
    ins: list[BlockSwap] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    touched: list[Request] = field(default_factory=list)
    closed: bool = False


def sharing(tables: Seq[Seq[int]]) -> list[list[int]]:
    """The tables with their blocks numbered in order of appearance. They show only the sharing."""
    names: dict[int, int] = {}
    return [[names.setdefault(block, len(names)) for block in table] for table in tables]


def blocks_to_go_on(request: Request, size: int) -> int:
    """How many blocks a swapped-out request holds once all of its known tokens are computed.

    Counted by simulating copy-on-write on plain lists.
    """
    tables = sharing([seq.cpu_block_table for seq in request.unfinished])
    count = Counter(block for table in tables for block in table)
    for seq, table in zip(request.unfinished, tables, strict=True):
        for i in range(seq.num_computed_tokens // size, -(-seq.num_tokens // size)):
            if i < len(table) and count[table[i]] == 1:
                continue
            if i < len(table):
                count[table[i]] -= 1
            count[len(count)] = 1
    return len(count)


class SwapModel:
    """A manager, a swap space and their tensors; the running and the swapped requests; the planned step."""

    def set_up(self, num_blocks: int, num_cpu_blocks: int, block_size: int, *, caching: bool) -> None:
        self.manager = make_manager(num_blocks, block_size, caching=caching)
        self.space = SwapSpace(self.manager.pool, num_cpu_blocks, block_size)
        self.tensors = TextTensors(num_blocks, num_cpu_blocks, block_size)
        self.running: list[Request] = []
        self.swapped: list[Request] = []
        self.plan = Plan()

    def references(self) -> Counter[int]:
        return Counter(b for request in self.running for seq in request.sequences for b in seq.block_table)

    def cpu_blocks(self) -> list[int]:
        """The CPU blocks in use. A block that two requests name appears twice."""
        return [
            b for request in self.swapped for b in {b for s in request.sequences for b in s.cpu_block_table}
        ]

    def num_free(self) -> int:
        return self.manager.pool.num_blocks - 1 - len(self.references())

    def num_free_on_cpu(self) -> int:
        return self.space.num_cpu_blocks - len(self.cpu_blocks())

    def is_planned(self, seq: Sequence) -> bool:
        return any(item.seq is seq for item in self.plan.items)

    def close(self) -> None:
        """End preemption for this step. All planned tokens will be computed, so they may be cached."""
        if not self.plan.closed:
            self.plan.closed = True
            for item in self.plan.items:
                self.cache(item.seq, item.end)

    def withdraw(self, request: Request) -> list[Item]:
        withdrawn = [item for item in self.plan.items if item.request is request]
        self.plan.items = [item for item in self.plan.items if item.request is not request]
        return withdrawn

    def drop(self, request: Request) -> None:
        for seq in request.sequences:
            self.manager.free(seq)
        self.space.discard(request)
        self.running = [one for one in self.running if one is not request]
        self.swapped = [one for one in self.swapped if one is not request]

    def spoil(self) -> None:
        pool, used, on_cpu = self.manager.pool, self.references(), self.cpu_blocks()
        self.tensors.spoil(
            (b for b in range(1, pool.num_blocks) if not used[b] and not pool.is_cached(b)),
            (b for b in range(self.space.num_cpu_blocks) if b not in on_cpu),
        )

    # Planning and undoing a step

    def compute(self, request: Request, seq: Sequence, end: int) -> bool:
        """Plan to compute the tokens up to position `end - 1`. Returns whether there are enough blocks."""
        size, pool, start = self.manager.block_size, self.manager.pool, seq.num_computed_tokens
        last = -(-end // size)
        before, count = list(seq.block_table), self.references()
        written = before[start // size : last]
        wanted = sum(count[block] > 1 for block in written) + max(0, last - len(before))
        fits = wanted <= self.num_free()
        copies = self.manager.append(seq, end - start)
        assert (copies is not None) == fits
        if copies is None:
            return False
        for block in list(seq.block_table)[start // size : last]:
            assert self.references()[block] == 1, "a shared block is about to be written"
            assert not pool.is_cached(block), "a cached block is about to be written"
        self.plan.items.append(Item(request, seq, end, copies))
        if self.plan.closed:
            self.cache(seq, end)
        return True

    def cache(self, seq: Sequence, end: int) -> None:
        self.manager.cache_full_blocks(seq, end, None)
        if self.manager.caches_prefixes:
            full = list(seq.block_table)[: end // self.manager.block_size]
            assert all(self.manager.pool.is_cached(block) for block in full)

    def roll_back(self) -> None:
        """The step failed: every request in the plan loses its blocks."""
        for request in self.plan.touched:
            for seq in request.sequences:
                seq.num_computed_tokens = 0
        for item in self.plan.items:
            self.manager.forget_uncomputed(item.seq)
        for request in [*self.plan.touched, *(item.request for item in self.plan.items)]:
            self.drop(request)
