"""BlockPool: which physical blocks are free, and how many sequences hold each of the others.

The pool knows nothing of sequences, tokens or tensors; it hands out numbers. Counts live here, on
the physical block, and not in the block tables: a table cannot know who else names its blocks.

See vLLM, `v1/core/block_pool.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.free_queue import FreeQueue, MakeFreeQueue, full_queue

NULL_BLOCK = 0
"""Block 0 is never handed out: it pads block tables, and padding may be read but never counts."""


class BlockPool:
    """Hands out blocks, counts references, and takes blocks back.

    Two things about a block are independent:

    |                           | not cached                    | cached: findable by its hash       |
    |---------------------------|-------------------------------|------------------------------------|
    | in use: `ref_cnt` >= 1    | being filled by its sequence  | full; others may share it          |
    | free: 0, in the queue     | holds nothing of worth        | a hit revives it, until it is      |
    |                           |                               | handed out anew (*eviction*)       |

    Args:
        num_blocks: blocks in the pool, the null block included; at least 2.
        on_evict: called with the id of a cached block that is about to be handed out anew.
        make_queue: makes the queue of free blocks, with all but the null block in it.
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
        """Blocks that can be handed out now, cached ones included."""
        return len(self.free_queue)

    @property
    def usage(self) -> float:
        """The share of blocks in use, the null block left out: `1 - free / (total - 1)`."""
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
        """Add a reference. A free block (a prefix hit) leaves the queue.

        Raises:
            InvariantError: the null block, which nobody may hold.
        """
        if block_id == NULL_BLOCK:
            raise InvariantError("the null block cannot be shared")
        if self.ref_cnt[block_id] == 0:
            self.free_queue.remove(block_id)
        self.ref_cnt[block_id] += 1

    def release(self, block_id: int) -> None:
        """Drop a reference. The last one puts the block back into the queue.

        Raises:
            InvariantError: the block is free already, or is the null block.
        """
        if block_id == NULL_BLOCK or self.ref_cnt[block_id] == 0:
            raise InvariantError(f"block {block_id} was freed, but nobody holds it")
        self.ref_cnt[block_id] -= 1
        if self.ref_cnt[block_id] == 0:
            self.put_back(block_id)

    def put_back(self, block_id: int) -> None:
        """Queue a block that nobody holds any more.

        A cached block goes to the back, so that the least recently used one is evicted first. Any
        other goes to the front: nothing is lost by reusing it.
        """
        if self._cached[block_id]:
            self.free_queue.push_back(block_id)
        else:
            self.free_queue.push_front(block_id)

    def is_cached(self, block_id: int) -> bool:
        """Whether the block's contents can be found by their hash."""
        return bool(self._cached[block_id])

    def set_cached(self, block_id: int, cached: bool) -> None:
        """Note that the block got a hash, or lost it."""
        self._cached[block_id] = cached

    def check_invariants(self) -> None:
        """Compare the queue with the counts.

        Raises:
            InvariantError: free + used + null is not the total, or a block is in both states.
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
