"""BlockManager: the paper's KV cache manager. It gives sequences their blocks.

The scheduler decides who runs; the manager finds the blocks for it, or says that there are none.
`fork`, `append` and `free` are the paper's three methods (section 4.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from minipaged.errors import InvariantError
from minipaged.kv.block_pool import NULL_BLOCK, BlockPool
from minipaged.kv.cache import BlockCopy
from minipaged.kv.prefix import ROOT_PREFIX_ID, CachedBlock, PrefixBlock, PrefixCache
from minipaged.kv.prefix_hash import PrefixHasher, cache_salt_keys
from minipaged.kv.size import blocks_needed
from minipaged.request import Request, Sequence


class BlockManager:
    """Block tables, sharing and prefix reuse over one `BlockPool`.

    Args:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.
        hasher: makes the block hashes; `None` turns prefix caching off.
    """

    def __init__(self, num_blocks: int, block_size: int, hasher: PrefixHasher | None) -> None:
        self.prefix_cache = PrefixCache()
        self.pool = BlockPool(num_blocks, on_evict=self.prefix_cache.evict)
        self.block_size = block_size
        self._hasher = hasher

    # The paper's three methods

    def append(self, seq: Sequence, num_tokens: int) -> list[BlockCopy] | None:
        """Make the slots of the next `num_tokens` tokens writable.

        Grows the block table, and copies on write: a block that others hold too is replaced by a
        new one. The last holder of a block writes in place (paper, Fig. 8). Only forked sequences
        ever share a block that is not full; prefix hits are full blocks, and nobody writes those.

        The reference to a copied block is given up before its contents have moved. That is safe:
        another sequence still holds it, all copies of a step are done before any of its writes, and
        they read all sources before they write any target.

        Returns:
            The copies to do before the tokens are computed; `None`, with nothing changed, if the
            pool has too few free blocks.
        """
        table, pool = seq.block_table, self.pool
        first = seq.num_computed_tokens // self.block_size
        end = blocks_needed(seq.num_computed_tokens + num_tokens, self.block_size)
        written = range(first, min(end, len(table)))
        shared = [i for i in written if pool.ref_cnt[table[i]] > 1]
        if len(shared) + max(0, end - len(table)) > pool.num_free:
            return None
        for i in written:
            # The fork outlived its parent, which had filled and cached this block: the contents
            # are about to change.
            if pool.ref_cnt[table[i]] == 1 and pool.is_cached(table[i]):
                self._uncache(table[i])
        copies = []
        for i in shared:
            copy = BlockCopy(source=table[i], target=pool.allocate())
            table[i] = copy.target
            pool.release(copy.source)
            copies.append(copy)
        while len(table) < end:
            table.append(pool.allocate())
        return copies

    def fork(self, parent: Sequence, child: Sequence, num_tokens: int) -> None:
        """Let `child`, which has no blocks, share the blocks of the parent's first `num_tokens`.

        The two agree on these tokens, and the parent has computed them. A last block that they
        only partly agree on is shared as well: whoever writes into it first copies it.
        """
        num_blocks = blocks_needed(num_tokens, self.block_size)
        for block_id in parent.block_table.ids[:num_blocks].tolist():
            self.pool.touch(block_id)
            child.block_table.append(block_id)
        num_full = num_tokens // self.block_size
        child.prefix_ids = parent.prefix_ids[:num_full]
        child.block_hashes = parent.block_hashes[:num_full]
        child.num_computed_tokens = num_tokens

    def free(self, seq: Sequence) -> None:
        """Give up the sequence's blocks, the last one first, so that the tail of a prefix is
        evicted before its head. Without blocks it has no computed tokens either."""
        for block_id in reversed(list(seq.block_table)):
            self.pool.release(block_id)
        seq.block_table.clear()
        seq.prefix_ids.clear()
        seq.num_computed_tokens = 0

    # Prefix reuse

    @property
    def caches_prefixes(self) -> bool:
        return self._hasher is not None

    def find_prefix(self, seq: Sequence, cache_salt: str | None) -> list[CachedBlock]:
        """The cached blocks that hold the beginning of `seq`, as far as there is no gap.

        Never all of its tokens: the last one is computed anyway, since its logits are needed.
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
        """Begin the block table of `seq`, which is empty, with the hits."""
        for hit in hits:
            self.pool.touch(hit.block_id)
            seq.block_table.append(hit.block_id)
            seq.prefix_ids.append(hit.prefix_id)
        seq.num_computed_tokens = len(hits) * self.block_size

    def cache_full_blocks(self, seq: Sequence, num_tokens: int, cache_salt: str | None) -> None:
        """Make the blocks findable that the first `num_tokens` of `seq` fill.

        May be called as soon as these tokens are scheduled: within a step, every layer writes all
        keys and values before any are read, so that a request of the same step may hit them.
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
        """Take back what `cache_full_blocks` promised beyond the tokens really computed."""
        num_full = seq.num_computed_tokens // self.block_size
        for block_id in seq.block_table.ids[num_full : len(seq.prefix_ids)].tolist():
            if self.pool.is_cached(block_id):
                self._uncache(block_id)
        del seq.prefix_ids[num_full:]

    def reset_prefix_cache(self) -> None:
        """Forget every cached block. Sequences that hold some keep them; nobody finds them."""
        for block_id in self.prefix_cache.block_ids():
            self._uncache(block_id)

    def _uncache(self, block_id: int) -> None:
        self.prefix_cache.evict(block_id)
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

        `hits` are those of its first unfinished sequence. A hit on a free block takes that block
        out of the queue, so it counts as well. The other samples of a request that resumes share
        the prompt's full blocks.
        """
        shared = len(request.prompt_token_ids) // self.block_size
        wanted = sum(blocks_needed(seq.num_tokens, self.block_size) for seq in request.unfinished)
        wanted -= shared * (len(request.unfinished) - 1)
        held = sum(1 for hit in hits if self.pool.ref_cnt[hit.block_id] > 0)
        return wanted - held <= self.pool.num_free

    def most_blocks(self, num_prompt_tokens: int, max_tokens: int, n: int) -> int:
        """The most blocks that a request can ever hold: `n` samples that share the prompt's full
        blocks and nothing else. The last token of a sample is never computed."""
        shared = num_prompt_tokens // self.block_size
        each = blocks_needed(num_prompt_tokens + max_tokens - 1, self.block_size)
        if max_tokens == 1:
            return each  # the samples write nothing, so they share the prompt's last block as well
        return shared + n * (each - shared)

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Compare the pool, the tables of all unfinished requests, and the prefix cache.

        Raises:
            InvariantError: a reference count is not the number of tables that name the block, a
                table does not cover the computed tokens, or the prefix cache and the pool disagree.
        """
        self.pool.check_invariants()
        named: Counter[int] = Counter()
        for request in requests:
            for seq in request.sequences:
                named.update(list(seq.block_table))
                num_held = max(len(seq.block_table), len(seq.cpu_block_table))
                if num_held < blocks_needed(seq.num_computed_tokens, self.block_size):
                    raise InvariantError(f"{seq} has computed tokens that its table does not cover")
                if seq.is_finished and len(seq.block_table):
                    raise InvariantError(f"{seq} has finished but holds blocks")
        for block_id, count in enumerate(self.pool.ref_cnt):
            if block_id != NULL_BLOCK and count != named[block_id]:
                raise InvariantError(
                    f"block {block_id} has ref_cnt {count}, but {named[block_id]} tables name it"
                )
        if named[NULL_BLOCK]:
            raise InvariantError("a block table names the null block")
        cached = {b for b in range(self.pool.num_blocks) if self.pool.is_cached(b)}
        if cached != self.prefix_cache.block_ids():
            raise InvariantError("the pool and the prefix cache disagree about what is cached")
