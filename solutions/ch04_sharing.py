"""Chapter 4, reference counts and copy-on-write: several block tables share a block.

A block table is a list of block ids, one for each logical block. `ref_cnt[b]` is the number of tables that
name block b. The pool is the engine's own, `minipaged/kv/block_pool.py`. You need these parts of it:

    pool.ref_cnt            the counts, a list
    pool.num_free           how many blocks are free
    pool.allocate()         hands out a free block, and sets its count to 1
    pool.release(block)     lowers a block's count by one; at 0 the block is free again
    pool.put_back(block)    frees a block whose count is 0 already: only for blocks that `free` returned

Two small classes are given. BlockCopy(source, target) is a dataclass, and Extension(parent, token_id,
cum_logprob), for 4.6, is a named tuple. BlockCopy is in `minipaged/kv/copy_on_write.py`, which is also the
engine's answer to 4.1 to 4.3, so look at this file later.

Plain Python is enough. The cache of 4.4 and 4.5 is a torch tensor, and you only have to index it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.course.ch04.extension import Extension
from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.copy_on_write import BlockCopy

if TYPE_CHECKING:
    from torch import Tensor


def fork(table: Sequence[int], ref_cnt: list[int]) -> list[int]:
    """A table for a second sequence with the same beginning: it names the same blocks.

    No block is copied. Each block gets one more holder.

    Args:
        table: the parent's block table. It does not change.
        ref_cnt: the count of every block of the pool; changed in place.

    Returns:
        The child's table, as a new list, since the two tables will soon differ.

    >>> ref_cnt = [1, 1, 0, 1]
    >>> fork([3, 1], ref_cnt), ref_cnt
    ([3, 1], [1, 2, 0, 2])
    """
    ### BEGIN SOLUTION 4.1
    for block_id in table:
        ref_cnt[block_id] += 1
    return list(table)
    ### END SOLUTION


def free(table: list[int], ref_cnt: list[int]) -> list[int]:
    """Free a table: lower the counts of its blocks, and empty it.

    Args:
        table: the table of a sequence that has ended. It is empty afterwards, so that freeing it again does
            nothing.
        ref_cnt: as in `fork`; changed in place.

    Returns:
        The blocks that no table names any more, beginning with the table's last block. (Chapter 8 says why:
        the end of a prefix is worth less than its beginning.) The caller puts them back into the pool.

    Raises:
        InvariantError: the count of one of the blocks is 0 already. In that case nothing changes.

    >>> ref_cnt, table = [1, 2, 0, 1], [1, 3]
    >>> free(table, ref_cnt), table, ref_cnt
    ([3], [], [1, 1, 0, 0])
    """
    ### BEGIN SOLUTION 4.2
    if any(ref_cnt[block_id] == 0 for block_id in table):
        raise InvariantError(f"table {table} names a free block")
    freed = []
    for block_id in reversed(table):
        ref_cnt[block_id] -= 1
        if ref_cnt[block_id] == 0:
            freed.append(block_id)
    table.clear()
    return freed
    ### END SOLUTION


def append(
    table: list[int], start: int, end: int, block_size: int, pool: BlockPool
) -> list[BlockCopy] | None:
    """Make the slots of positions `start` to `end - 1` safe to write: no other table may share them.

    If another table also names a block of these positions, replace the block by a new one in this table. Then
    let the table grow until it covers all positions. Blocks that lie completely before `start`, or completely
    after the last of these positions, are not written. They do not change, whether shared or not.

    Args:
        table: the table of the sequence that will write; changed in place. It covers at least the positions
            before `start`, and may already be longer than `end` needs.
        start, end: positions in the sequence, `start < end`.
        block_size: tokens per block.
        pool: the pool of free blocks.

    Returns:
        The copies to do before the tokens are written, in the order of the table. `None` if the pool has too
        few free blocks; in that case nothing changes.

    Two tables name block 1, which has room for one more token:

    >>> pool = BlockPool(5)
    >>> table = [pool.allocate()]
    >>> sibling = fork(table, pool.ref_cnt)
    >>> append(table, 3, 5, block_size=4, pool=pool), table, sibling
    ([BlockCopy(source=1, target=2)], [2, 3], [1])
    """
    ### BEGIN SOLUTION 4.3
    num_blocks = -(-end // block_size)  # in the table at the end
    written = range(start // block_size, min(num_blocks, len(table)))  # of the existing blocks
    shared = [i for i in written if pool.ref_cnt[table[i]] > 1]
    if len(shared) + max(0, num_blocks - len(table)) > pool.num_free:
        return None
    copies = []
    for i in shared:
        source, target = table[i], pool.allocate()
        table[i] = target
        pool.release(source)  # another table still names it
        copies.append(BlockCopy(source, target))
    while len(table) < num_blocks:
        table.append(pool.allocate())
    return copies
    ### END SOLUTION


def copy_blocks(cache: Tensor, copies: Sequence[BlockCopy]) -> None:
    """Copy the contents of blocks: keys and values, in all layers.

    All copies of a step happen at once: every target gets what its source held before the first copy. A block
    may be the source of one copy and the target of another.

    Args:
        cache: `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`; changed in place.
        copies: may be empty. No two copies have the same target.

    >>> import torch
    >>> cache = torch.arange(4.0).view(1, 1, 4, 1, 1, 1).repeat(3, 2, 1, 1, 1, 1)
    >>> copy_blocks(cache, [BlockCopy(source=1, target=3)])
    >>> cache[2, 1].flatten().tolist()
    [0.0, 1.0, 2.0, 1.0]
    """
    ### BEGIN SOLUTION 4.4
    sources = [copy.source for copy in copies]
    targets = [copy.target for copy in copies]
    # The right-hand side is a new tensor: all sources are read before any target is written.
    cache[:, :, targets] = cache[:, :, sources]
    ### END SOLUTION


def start_samples(table: list[int], num_samples: int, ref_cnt: list[int]) -> list[list[int]]:
    """The tables of several samples of one prompt, which has just been computed.

    Args:
        table: the prompt's table. It becomes the first sample's table.
        num_samples: at least 1.
        ref_cnt: as in `fork`; changed in place.

    >>> ref_cnt = [1, 1, 1]
    >>> start_samples([2, 1], 3, ref_cnt), ref_cnt
    ([[2, 1], [2, 1], [2, 1]], [1, 3, 3])
    """
    ### BEGIN SOLUTION 4.5
    return [table] + [fork(table, ref_cnt) for _ in range(num_samples - 1)]
    ### END SOLUTION


def decode_step(
    cache: Tensor, tables: Sequence[list[int]], position: int, new_kv: Tensor, pool: BlockPool
) -> list[BlockCopy]:
    """One decode step: each sample writes one token, and all write at the same position.

    First, call `append` for each sample, in order. Then do all copies of the step together. Then write the
    tokens.

    Args:
        cache: as in `copy_blocks`; changed in place.
        tables: the samples' tables; changed in place.
        position: the new tokens' position in their sequences.
        new_kv: the new tokens' keys and values,
            `[num_samples, num_layers, 2, num_kv_heads, head_dim]`.
        pool: the pool of free blocks.

    Returns:
        The copies that were done.

    Raises:
        OutOfBlocksError: the pool has too few free blocks for one of the samples. The tables of earlier
            samples may have changed by then.
    """
    ### BEGIN SOLUTION 4.5
    block_size = cache.shape[3]
    copies: list[BlockCopy] = []
    for table in tables:
        found = append(table, position, position + 1, block_size, pool)
        if found is None:
            raise OutOfBlocksError(f"no room for a token at position {position}")
        copies += found
    copy_blocks(cache, copies)
    for table, kv in zip(tables, new_kv, strict=True):
        cache[:, :, table[position // block_size], position % block_size] = kv
    return copies
    ### END SOLUTION


def sharing_saving(tables: Sequence[Sequence[int]]) -> float:
    """The share of blocks that sharing saves, 0 to 1: blocks saved, divided by blocks without sharing.

    Without sharing, every entry of a table would be a block of its own (paper, Fig. 15).

    Args:
        tables: the tables of all sequences; may be empty.

    >>> sharing_saving([[7, 1], [7, 3]])
    0.25
    """
    ### BEGIN SOLUTION 4.5
    unshared = sum(len(table) for table in tables)
    shared = len({block_id for table in tables for block_id in table})
    return 1 - shared / unshared if unshared else 0.0
    ### END SOLUTION


def best_extensions(
    cum_logprobs: Sequence[float], candidates: Sequence[Sequence[tuple[int, float]]], beam_width: int
) -> list[Extension]:
    """The beams of the next step: the most probable extensions of all beams.

    Args:
        cum_logprobs: for each beam, the sum of its tokens' log-probabilities.
        candidates: for each beam, some likely next tokens: (token id, log-probability).
        beam_width: how many beams to return. With fewer candidates, there are fewer beams.

    Returns:
        The extensions, best first. Among equals, the earlier parent comes first, then the lower token id.

    >>> best_extensions([-1.0, -2.0], [[(5, -3.0), (6, -0.5)], [(7, -0.25)]], beam_width=2)
    [Extension(parent=0, token_id=6, cum_logprob=-1.5), Extension(parent=1, token_id=7, cum_logprob=-2.25)]
    """
    ### BEGIN SOLUTION 4.6
    extensions = [
        Extension(parent, token_id, cum_logprobs[parent] + logprob)
        for parent, likely in enumerate(candidates)
        for token_id, logprob in likely
    ]
    extensions.sort(key=lambda each: (-each.cum_logprob, each.parent, each.token_id))
    return extensions[:beam_width]
    ### END SOLUTION


def follow(tables: Sequence[list[int]], parents: Sequence[int], pool: BlockPool) -> list[list[int]]:
    """The block tables of the next step: fork each beam's table for each of its children, then free it.

    Args:
        tables: the tables of this step's beams.
        parents: for each beam of the next step, the index of its parent in `tables`. A beam may have several
            children, or none.
        pool: the pool of free blocks. Blocks that no table names any more go back into it.

    Returns:
        The tables of the next step's beams, in the order of `parents`. The old tables are not used any more.

    >>> pool = BlockPool(5)
    >>> first = [pool.allocate()]
    >>> second = [pool.allocate()]
    >>> follow([first, second], [1, 1], pool), pool.ref_cnt
    ([[2], [2]], [1, 0, 2, 0, 0])
    """
    ### BEGIN SOLUTION 4.6
    children = [fork(tables[parent], pool.ref_cnt) for parent in parents]
    for table in tables:
        for block_id in free(table, pool.ref_cnt):
            pool.put_back(block_id)
    return children
    ### END SOLUTION
