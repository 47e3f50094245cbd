"""BlockManager: the paper's KV cache manager. It gives sequences their blocks.

The scheduler decides which requests run. The manager finds blocks for them, or says that there are too
few. `fork`, `append` and `free` are the paper's three methods (section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable

from minipaged.errors import InvariantError, RequestTooLargeError
from minipaged.kv import copy_on_write
from minipaged.kv.block_invariants import check_blocks
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.breakdown import MemoryBreakdown, paged_breakdown
from minipaged.kv.copy_on_write import Append, BlockCopy, Fork, Free
from minipaged.kv.free_queue import MakeFreeQueue, full_queue
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_cache import ROOT_PREFIX_ID, CachedBlock, PrefixBlock, PrefixCache
from minipaged.kv.prefix_hash import PrefixHasher, cache_salt_keys
from minipaged.kv.size import blocks_needed
from minipaged.request import Request, Sequence


class BlockManager(KVManager):
    """Block tables, sharing and prefix reuse over one `BlockPool`.

    Args:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.
        hasher: makes the block hashes; `None` turns prefix caching off.
        copies_forks: whether a fork copies all its blocks, not only those that it writes. This is paging
            without sharing. It cannot be combined with prefix caching.
        make_free_queue: makes the pool's queue of free blocks.
        fork, append, free: the functions that the methods of these names call. Each works on one block
            table and the pool's reference counts.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        hasher: PrefixHasher | None,
        *,
        copies_forks: bool = False,
        make_free_queue: MakeFreeQueue = full_queue,
        fork: Fork = copy_on_write.fork,
        append: Append = copy_on_write.append,
        free: Free = copy_on_write.free,
    ) -> None:
        self.prefix_cache = PrefixCache()
        self.pool = BlockPool(num_blocks, self._evict, make_free_queue)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._hasher = hasher
        self._copies_forks = copies_forks
        self._fork = fork
        self._append = append
        self._free = free

    # The paper's three methods

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        """Make the slots of the next `num_tokens` tokens writable.

        This grows the block table, and copies on write; see `copy_on_write.append`. Only forked
        sequences share blocks that are not full. Blocks of prefix hits are full, and full blocks are not
        written. With `copies_forks`, every shared block is replaced, even one that is only read.

        Returns:
            The copies to do before the tokens are computed. `None` if the pool has too few free blocks;
            then nothing has changed.
        """
        table, size = seq.block_table, self.block_size
        start = seq.num_computed_tokens
        end = start + num_tokens
        copies = self._append(table, 0 if self._copies_forks else start, end, size, self.pool)
        if copies is None or self._hasher is None:
            return copies
        # The first block that is written may be cached, if the parent of a fork filled and cached it before
        # the parent ended. Uncache it, because its contents are about to change. The blocks after it are new.
        block_id = table[start // size]
        if self.pool.is_cached(block_id):
            self._uncache(block_id)
        return copies

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Let `child` share the blocks of the parent's first `num_tokens` tokens.

        `child` has no blocks yet.

        Both sequences begin with these tokens, and the parent has computed them. The last block may be
        only partly filled by them. It is shared too, and the sequence that writes into it first copies it.
        """
        num_blocks = blocks_needed(num_tokens, self.block_size)
        shared = parent.block_table.ids[:num_blocks].tolist()
        child.block_table.extend(self._fork(shared, self.pool.ref_cnt))
        num_full = num_tokens // self.block_size
        child.prefix_ids = parent.prefix_ids[:num_full]
        child.block_hashes = parent.block_hashes[:num_full]
        child.num_computed_tokens = num_tokens

    def free(self, seq: Sequence) -> None:
        """Free the sequence's blocks. Afterwards the sequence has no computed tokens.

        The last block is freed first, so that the tail of a prefix is evicted before its head.
        """
        for block_id in self._free(seq.block_table, self.pool.ref_cnt):
            self.pool.put_back(block_id)
        seq.prefix_ids.clear()
        seq.num_computed_tokens = 0

    def free_request(self, request: Request) -> None:
        for seq in request.sequences:
            self.free(seq)

    def admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        """Admit a waiting request if all of its known tokens fit; see `KVManager.admit`.

        The request gets only the hit blocks now. It gets the other blocks when they are needed.
        """
        if not self.can_admit(request, hits):
            return False
        self.begin(request, request.unfinished[0], hits)
        return True

    def begin(self, request: Request, seq: Sequence, hits: list[CachedBlock]) -> None:
        self.adopt_prefix(seq, hits)

    # Prefix reuse

    @property
    def caches_prefixes(self) -> bool:
        return self._hasher is not None

    def find_prefix(self, seq: Sequence, cache_salt: str | None) -> list[CachedBlock]:
        """The cached blocks that hold the beginning of `seq`, up to the first block that is not cached.

        The hits never cover all tokens of `seq`: its last token is computed again, since its logits are
        needed.
        """
        if self._hasher is None:
            return []
        hits: list[CachedBlock] = []
        parent_id = ROOT_PREFIX_ID
        for i in range((seq.num_tokens - 1) // self.block_size):
            hit = self.prefix_cache.find(self._prefix_block(seq, i, parent_id, cache_salt))
            if hit is None:
                break
            hits.append(hit)
            parent_id = hit.prefix_id
        return hits

    def adopt_prefix(self, seq: Sequence, hits: list[CachedBlock]) -> None:
        """Append the hit blocks to the block table of `seq`, which is empty so far."""
        for hit in hits:
            self.pool.touch(hit.block_id)
            seq.block_table.append(hit.block_id)
            seq.prefix_ids.append(hit.prefix_id)
        seq.num_computed_tokens = len(hits) * self.block_size

    def cache_full_blocks(self, seq: Sequence, num_tokens: int, cache_salt: str | None) -> None:
        """Cache the blocks that the first `num_tokens` tokens of `seq` fill.

        This may be called as soon as the tokens are scheduled, so that another request of the same step
        can hit the blocks. That is safe because, in each layer, a step writes all keys and values before it
        reads any.
        """
        if self._hasher is None:
            return
        for i in range(len(seq.prefix_ids), num_tokens // self.block_size):
            block_id = seq.block_table[i]
            cached = self.prefix_cache.get(block_id)
            if cached is None:
                parent_id = seq.prefix_ids[-1] if seq.prefix_ids else ROOT_PREFIX_ID
                cached = self.prefix_cache.insert(block_id, self._prefix_block(seq, i, parent_id, cache_salt))
                self.pool.set_cached(block_id, True)
            seq.prefix_ids.append(cached.prefix_id)

    def forget_uncomputed(self, seq: Sequence) -> None:
        """Uncache the blocks of `seq` that `cache_full_blocks` cached but that were never computed."""
        num_full = seq.num_computed_tokens // self.block_size
        for block_id in seq.block_table.ids[num_full : len(seq.prefix_ids)].tolist():
            if self.pool.is_cached(block_id):
                self._uncache(block_id)
        del seq.prefix_ids[num_full:]

    def reset_prefix_cache(self) -> None:
        """Forget every cached block. Running sequences keep their blocks, but no prefix hit finds them."""
        for block_id in self.prefix_cache.block_ids():
            self._uncache(block_id)

    def _evict(self, block_id: int) -> None:
        self.prefix_cache.evict(block_id)

    def _uncache(self, block_id: int) -> None:
        self._evict(block_id)
        self.pool.set_cached(block_id, False)

    def _prefix_block(self, seq: Sequence, index: int, parent_id: int, cache_salt: str | None) -> PrefixBlock:
        assert self._hasher is not None
        size = self.block_size
        token_ids = tuple(seq.token_ids[index * size : (index + 1) * size])
        keys = cache_salt_keys(cache_salt) if index == 0 else None
        if index == len(seq.block_hashes):
            parent = seq.block_hashes[-1] if seq.block_hashes else self._hasher.none_hash
            seq.block_hashes.append(self._hasher.hash_block(parent, token_ids, keys))
        return PrefixBlock(seq.block_hashes[index], parent_id, token_ids, keys)

    # Whether something fits

    def can_admit(self, request: Request, hits: list[CachedBlock]) -> bool:
        """Whether all known tokens of a waiting request fit into the free blocks.

        `hits` are the prefix hits of its first unfinished sequence. A hit on a used block costs no free
        block. A hit on a free block does, since it takes that block out of the queue. When a request
        with several samples resumes, its other samples share the prompt's full blocks.
        """
        shared = self._num_shared(len(request.prompt_token_ids))
        wanted = sum(blocks_needed(seq.num_tokens, self.block_size) for seq in request.unfinished)
        wanted -= shared * (len(request.unfinished) - 1)
        held = sum(1 for hit in hits if self.pool.ref_cnt[hit.block_id] > 0)
        return wanted - held <= self.pool.num_free

    def most_blocks(self, num_prompt_tokens: int, max_tokens: int, n: int) -> int:
        """The most blocks that a request of `n` samples can ever hold.

        In the worst case the samples share only the prompt's full blocks, or nothing if forks are
        copied. A sample's last token is never computed, so it needs no slot.
        """
        shared = self._num_shared(num_prompt_tokens)
        each = blocks_needed(num_prompt_tokens + max_tokens - 1, self.block_size)
        if max_tokens == 1:
            return each  # the samples write nothing, so they share the prompt's last block as well
        return shared + n * (each - shared)

    def _num_shared(self, num_prompt_tokens: int) -> int:
        """How many of the prompt's blocks the samples of a request share until they end."""
        return 0 if self._copies_forks else num_prompt_tokens // self.block_size

    def check_fits(self, num_prompt_tokens: int, max_tokens: int, num_seqs: int, kind: str) -> None:
        most = self.most_blocks(num_prompt_tokens, max_tokens, num_seqs)
        usable = self.num_blocks - 1
        if most > usable:
            sharing = "sharing nothing" if self._copies_forks else "sharing the prompt"
            raise RequestTooLargeError(
                f"{num_seqs} {kind} of {num_prompt_tokens:,} prompt and up to {max_tokens:,} output "
                f"tokens can need {most:,} blocks of {self.block_size}, {sharing}; the pool has "
                f"{usable:,}. Ask for fewer {kind} or tokens, or give the engine more memory."
            )

    def surely_fit(self, requests: Iterable[Request]) -> bool:
        """Sum the most that each request may need alone. Sharing between requests only lowers the need."""
        most = sum(
            self.most_blocks(len(request.prompt_token_ids), request.max_tokens, request.num_seqs)
            for request in requests
        )
        return most <= self.num_blocks - 1

    # How much memory there is, and how much is used

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def usage(self) -> float:
        return self.pool.usage

    @property
    def num_blocks_in_tables(self) -> int:
        return self.num_blocks - 1 - self.pool.num_free

    def breakdown(self, running: Iterable[Request], next_request: Request | None) -> MemoryBreakdown:
        return paged_breakdown(self.pool, self.block_size, running)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Compare the pool, the tables of all unfinished requests, and the prefix cache.

        Raises:
            InvariantError: a reference count is not the number of tables that name the block, a table
                does not cover the computed tokens, the pool and the prefix cache disagree, or one of
                them contradicts itself.
        """
        check_blocks(self.pool, self.block_size, requests)
        self.prefix_cache.check_invariants()
        cached = {b for b in range(self.pool.num_blocks) if self.pool.is_cached(b)}
        if cached != self.prefix_cache.block_ids():
            raise InvariantError("the pool and the prefix cache disagree about what is cached")
