"""Swapping: the blocks of a preempted request are copied to CPU memory, and back when it resumes.

This is the alternative to recomputation (paper, section 4.5). A block that sequences of the request share
is saved once, and they share it again afterwards. A block that other requests hold is saved too, since it
may be gone when the request resumes.

A CPU block is a number from 0 on. It belongs to one request, so it needs no reference count. When a step is
planned, a sequence's GPU block ids are replaced by CPU block ids, or the other way round. The contents are
copied when the step is executed. The order of execution is: swaps out, swaps in, block copies, the step's own
writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minipaged.errors import InvariantError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.size import blocks_needed
from minipaged.request import Request
from minipaged.request import Sequence as TokenSequence


@dataclass(frozen=True)
class BlockSwap:
    """One copy between a block of the pool and a CPU block, in all layers."""

    block: int
    cpu_block: int


class SwapSpace:
    """Exchanges the blocks of requests for CPU blocks, and back.

    Args:
        pool: the block pool.
        num_cpu_blocks: how many CPU blocks there are. A number equal to the number of blocks in the pool is
            always enough.
        block_size: tokens per block.
    """

    def __init__(self, pool: BlockPool, num_cpu_blocks: int, block_size: int) -> None:
        self.num_cpu_blocks = num_cpu_blocks
        self._pool = pool
        self._free = list(range(num_cpu_blocks - 1, -1, -1))
        self._block_size = block_size

    @property
    def num_free(self) -> int:
        """The number of free CPU blocks."""
        return len(self._free)

    def swap_out(self, request: Request, moved_from: Mapping[int, int]) -> list[BlockSwap] | None:
        """Exchange a request's blocks for CPU blocks. Only blocks with computed tokens are saved.

        Args:
            request: all of its sequences are swapped out together.
            moved_from: maps the target to the source of each block copy that is planned for this request but
                not done yet. The contents of such a target are still in its source.

        Returns:
            The copies to do. `None` if there are too few CPU blocks, or if the request was preempted
            before and some of its sequences are not computed again yet. In both cases nothing has changed.
        """
        if any(seq.num_computed_tokens == 0 for seq in request.unfinished):
            # The computed sequences may be beams that wait for the ones that are not computed yet. If
            # only they were swapped in again, the request would have nothing to compute.
            return None
        saved: dict[int, int] = {}  # block -> CPU block
        for seq in request.sequences:
            for block in seq.block_table.ids[: self._num_computed_blocks(seq)].tolist():
                saved.setdefault(block, -1)
        if len(saved) > len(self._free):
            return None
        for block in saved:
            saved[block] = self._free.pop()
        for seq in request.sequences:
            held = list(seq.block_table)
            seq.cpu_block_table = [saved[block] for block in held[: self._num_computed_blocks(seq)]]
            for block in reversed(held):
                self._pool.release(block)
            seq.block_table.clear()
            seq.prefix_ids.clear()
        return [BlockSwap(moved_from.get(block, block), cpu_block) for block, cpu_block in saved.items()]

    def can_swap_in(self, request: Request) -> bool:
        """Whether the free blocks are enough for all tokens of a request that was swapped out.

        That means its saved blocks, and the blocks for its tokens that are not computed yet. With fewer,
        the request could not continue, and would be swapped out again.
        """
        restored = [seq for seq in request.unfinished if seq.cpu_block_table]
        wanted = len(self._cpu_blocks(request))
        writers: Counter[int] = Counter()
        for seq in restored:
            wanted += blocks_needed(seq.num_tokens, self._block_size) - len(seq.cpu_block_table)
            written = seq.num_computed_tokens // self._block_size
            if written < len(seq.cpu_block_table):
                writers[seq.cpu_block_table[written]] += 1
        holders = Counter(block for seq in restored for block in seq.cpu_block_table)
        for block, count in writers.items():
            # Each writer needs a copy of the block, but the last sequence that holds it writes in place.
            wanted += count if holders[block] > count else count - 1
        return wanted <= self._pool.num_free

    def swap_in(self, request: Request) -> list[BlockSwap]:
        """Exchange a request's CPU blocks for blocks of the pool. Its sequences share them as before.

        Call it only if `can_swap_in` is true.

        Returns:
            The copies to do.
        """
        restored: dict[int, int] = {}  # CPU block -> block
        for seq in request.sequences:
            for cpu_block in seq.cpu_block_table:
                if cpu_block in restored:
                    self._pool.touch(restored[cpu_block])
                else:
                    restored[cpu_block] = self._pool.allocate()
                seq.block_table.append(restored[cpu_block])
        self.discard(request)
        return [BlockSwap(block, cpu_block) for cpu_block, block in restored.items()]

    def discard(self, request: Request) -> None:
        """Free a request's CPU blocks."""
        self._free += sorted(self._cpu_blocks(request), reverse=True)
        for seq in request.sequences:
            seq.cpu_block_table = []

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Compare the CPU blocks with the tables that name them.

        Raises:
            InvariantError: a CPU block is used by two requests, or is neither free nor used.
        """
        used = [block for request in requests for block in self._cpu_blocks(request)]
        if sorted([*used, *self._free]) != list(range(self.num_cpu_blocks)):
            raise InvariantError("the CPU blocks in use and the free ones do not add up")

    def _num_computed_blocks(self, seq: TokenSequence) -> int:
        return blocks_needed(seq.num_computed_tokens, self._block_size)

    @staticmethod
    def _cpu_blocks(request: Request) -> set[int]:
        return {block for seq in request.sequences for block in seq.cpu_block_table}
