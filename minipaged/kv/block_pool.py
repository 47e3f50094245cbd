"""BlockPool: which physical blocks are free, and how many sequences hold each used block.

The pool knows nothing about sequences, tokens or tensors: it hands out block ids. The reference counts
are kept here, per physical block, because a block table cannot know which other tables name its blocks.

See vLLM, `v1/core/block_pool.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.free_queue import FreeQueue, MakeFreeQueue, full_queue

NULL_BLOCK = 0
"""Block 0 is never handed out. It pads block tables: attention may read it, but masks what it reads."""


class BlockPool:
    """Hands out blocks, counts references, and takes blocks back.

    A block is in use or free, and it is cached or not. All four combinations occur:

    |                               | not cached                   | cached: findable by its hash        |
    |-------------------------------|------------------------------|-------------------------------------|
    | in use: `ref_cnt` >= 1        | its sequence is filling it   | full; more sequences may share it   |
    | free: `ref_cnt` 0, in queue   | its contents are worthless   | a prefix hit may take it, until it  |
    |                               |                              | is handed out again (*eviction*)    |

    Args:
        num_blocks: blocks in the pool, the null block included; at least 2.
        on_evict: called with the id of a cached block just before it is handed out again.
        make_queue: makes the queue of free blocks, which holds all blocks but the null block.
    """

    def __init__(
        self,
        num_blocks: int,
        on_evict: Callable[[int], None] | None = None,
        make_queue: MakeFreeQueue = full_queue,
    ) -> None:
        self.num_blocks = num_blocks
        self.ref_cnt = [0] * num_blocks
        self._cached = bytearray(num_blocks)  # 1 where the block has a hash
        self._on_evict = on_evict
        self.free_queue: FreeQueue = make_queue(num_blocks)
        self.ref_cnt[NULL_BLOCK] = 1

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, including cached ones."""
        return len(self.free_queue)

    @property
    def usage(self) -> float:
        """The share of blocks in use, without the null block: `1 - free / (total - 1)`."""
        return 1 - self.num_free / (self.num_blocks - 1)

    def allocate(self) -> int:
        """Hand out the block at the front of the queue, with one reference.

        Raises:
            OutOfBlocksError: no block is free.
        """
        if not self.free_queue:
            raise OutOfBlocksError(f"all {self.num_blocks - 1} blocks of the pool are in use")
        block_id = self.free_queue.pop_front()
        if self._cached[block_id]:
            self.set_cached(block_id, False)
            if self._on_evict is not None:
                self._on_evict(block_id)
        self.ref_cnt[block_id] = 1
        return block_id

    def touch(self, block_id: int) -> None:
        """Add a reference to a block. A block that was free, as in a prefix hit, leaves the queue.

        Raises:
            InvariantError: the block is the null block.
        """
        if block_id == NULL_BLOCK:
            raise InvariantError("the null block cannot be shared")
        if self.ref_cnt[block_id] == 0:
            self.free_queue.remove(block_id)
        self.ref_cnt[block_id] += 1

    def release(self, block_id: int) -> None:
        """Drop a reference to a block. If it was the last one, the block returns to the queue.

        Raises:
            InvariantError: the block is free already, or is the null block.
        """
        if block_id == NULL_BLOCK or self.ref_cnt[block_id] == 0:
            raise InvariantError(f"block {block_id} was freed, but its count is 0 already")
        self.ref_cnt[block_id] -= 1
        if self.ref_cnt[block_id] == 0:
            self.put_back(block_id)

    def put_back(self, block_id: int) -> None:
        """Queue a block whose reference count has dropped to 0.

        A cached block goes to the back, so that the least recently used cached block is evicted first. A
        block that is not cached goes to the front: its contents are worthless, so reusing it loses
        nothing.
        """
        if self._cached[block_id]:
            self.free_queue.push_back(block_id)
        else:
            self.free_queue.push_front(block_id)

    def is_cached(self, block_id: int) -> bool:
        """Whether the block's contents can be found by their hash."""
        return bool(self._cached[block_id])

    def set_cached(self, block_id: int, cached: bool) -> None:
        """Record whether the block can be found by its hash."""
        self._cached[block_id] = cached

    def check_invariants(self) -> None:
        """Compare the queue with the reference counts.

        Raises:
            InvariantError: free + used + null is not the total, or a block is both free and used.
        """
        queued = list(self.free_queue)
        if len(queued) != len(set(queued)) or len(queued) != len(self.free_queue):
            raise InvariantError("the free queue holds a block twice, or has lost count")
        expected = {b for b, count in enumerate(self.ref_cnt) if count == 0}
        if set(queued) != expected:
            raise InvariantError(
                f"free queue and reference counts disagree about blocks {sorted(set(queued) ^ expected)}"
            )
        if self.ref_cnt[NULL_BLOCK] != 1 or self._cached[NULL_BLOCK]:
            raise InvariantError("the null block was shared, freed or cached")
