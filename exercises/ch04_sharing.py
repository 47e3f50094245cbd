"""Chapter 4, reference counts and copy-on-write: several block tables, one block.

A block table is a list of block ids, one for each logical block. `ref_cnt[b]` counts the tables that
name block b. The pool is the engine's own, `minipaged/kv/block_pool.py`; of it you need

    pool.ref_cnt            the counts, a list
    pool.num_free           how many blocks are free
    pool.allocate()         hands out a free block, whose count is then 1
    pool.release(block)     gives up one reference: lowers a count; at 0 the block is free again
    pool.put_back(block)    makes a block free whose count is 0 already: only for what `free` returned

Two small classes are given, with these fields: BlockCopy(source, target), a dataclass, and for 4.6
Extension(parent, token_id, cum_logprob), a named tuple. BlockCopy's file, `minipaged/kv/copy_on_write.py`, is
the engine's answer to 4.1 to 4.3: look at it later.

Plain Python is enough. The cache of 4.4 and 4.5 is a tensor, and indexing it is all you need of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minipaged.course import NotYet
from minipaged.course.ch04.extension import Extension
from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.block_pool import BlockPool
from minipaged.kv.copy_on_write import BlockCopy

if TYPE_CHECKING:
    from torch import Tensor


def fork(table: Sequence[int], ref_cnt: list[int]) -> list[int]:
    """A table for a second sequence that begins as the first one does: the same blocks.

    Nothing is copied. Each block has one holder more.

    Args:
        table: the parent's block table; it stays as it is.
        ref_cnt: the count of every block of the pool; changed in place.

    Returns:
        The child's table: a list of its own, since the two will part.

    >>> ref_cnt = [1, 1, 0, 1]
    >>> fork([3, 1], ref_cnt), ref_cnt
    ([3, 1], [1, 2, 0, 2])
    """
    # Exercise 4.1: your code here.
    raise NotYet("4.1", "fork")


def free(table: list[int], ref_cnt: list[int]) -> list[int]:
    """Give up all blocks of a table, and empty it.

    Args:
        table: the table of a sequence that ends; empty afterwards, so that freeing it once more does
            nothing.
        ref_cnt: as above; changed in place.

    Returns:
        The blocks that no table names any more, those of the table's end first. (Chapter 8 says why:
        the tail of a prefix is worth less than its head.) The caller puts them back into the pool.

    Raises:
        InvariantError: the count of one of the blocks is 0 already. Nothing has changed then.

    >>> ref_cnt, table = [1, 2, 0, 1], [1, 3]
    >>> free(table, ref_cnt), table, ref_cnt
    ([3], [], [1, 1, 0, 0])
    """
    # Exercise 4.2: your code here.
    raise NotYet("4.2", "free")


def append(
    table: list[int], start: int, end: int, block_size: int, pool: BlockPool
) -> list[BlockCopy] | None:
    """Make the slots of the tokens at positions `start` to `end - 1` writable for this table alone.

    Blocks that these positions fall into and that other tables name too are replaced by new ones;
    then the table grows until it covers all positions. Blocks wholly before `start`, or wholly
    after the last written position, are not written: they stay as they are, shared or not.

    Args:
        table: the table of the sequence that will write; changed in place. It covers at least the
            positions before `start`, and may be longer than `end` needs.
        start, end: positions in the sequence, `start < end`.
        block_size: tokens per block.
        pool: see above.

    Returns:
        The copies to do before the tokens are written, in the order of the blocks; `None`, with
        nothing changed, if the pool has too few free blocks.

    Two tables name block 1, which has room for one token more:

    >>> pool = BlockPool(5)
    >>> table = [pool.allocate()]
    >>> sibling = fork(table, pool.ref_cnt)
    >>> append(table, 3, 5, block_size=4, pool=pool), table, sibling
    ([BlockCopy(source=1, target=2)], [2, 3], [1])
    """
    # Exercise 4.3: your code here.
    raise NotYet("4.3", "append")


def copy_blocks(cache: Tensor, copies: Sequence[BlockCopy]) -> None:
    """Copy the contents of blocks, keys and values, in all layers.

    All copies of a step happen at once: every target gets what its source held before any of them. A
    block may be the source of one copy and the target of another.

    Args:
        cache: `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`; changed in place.
        copies: may be empty. No block is a target twice.

    >>> import torch
    >>> cache = torch.arange(4.0).view(1, 1, 4, 1, 1, 1).repeat(3, 2, 1, 1, 1, 1)
    >>> copy_blocks(cache, [BlockCopy(source=1, target=3)])
    >>> cache[2, 1].flatten().tolist()
    [0.0, 1.0, 2.0, 1.0]
    """
    # Exercise 4.4: your code here.
    raise NotYet("4.4", "copy_blocks")


def start_samples(table: list[int], num_samples: int, ref_cnt: list[int]) -> list[list[int]]:
    """The tables of some samples of one prompt, which has just been computed.

    Args:
        table: the prompt's. It becomes the first sample's.
        num_samples: 1 or more.
        ref_cnt: as above; changed in place.

    >>> ref_cnt = [1, 1, 1]
    >>> start_samples([2, 1], 3, ref_cnt), ref_cnt
    ([[2, 1], [2, 1], [2, 1]], [1, 3, 3])
    """
    # Exercise 4.5: your code here.
    raise NotYet("4.5", "start_samples")


def decode_step(
    cache: Tensor, tables: Sequence[list[int]], position: int, new_kv: Tensor, pool: BlockPool
) -> list[BlockCopy]:
    """One decode step: each sample writes one token, all of them at the same position.

    The samples make room in their order. Then the step's copies are done, all together, and its
    tokens written.

    Args:
        cache: as above; changed in place.
        tables: the samples' tables; changed in place.
        position: of the new token in its sequence.
        new_kv: the new tokens' keys and values,
            `[num_samples, num_layers, 2, num_kv_heads, head_dim]`.
        pool: as above.

    Returns:
        The copies that were done.

    Raises:
        OutOfBlocksError: the pool has too few free blocks for one of the samples. The tables of the
            samples before it may have changed by then; that is allowed.
    """
    # Exercise 4.5: your code here.
    raise NotYet("4.5", "decode_step")


def sharing_saving(tables: Sequence[Sequence[int]]) -> float:
    """The share of blocks that sharing saves, 0 to 1: blocks saved, over blocks without sharing.

    Without sharing, every entry of a table would be a block of its own (paper, Fig. 15).

    Args:
        tables: of all sequences; may be empty.

    >>> sharing_saving([[7, 1], [7, 3]])
    0.25
    """
    # Exercise 4.5: your code here.
    raise NotYet("4.5", "sharing_saving")


def best_extensions(
    cum_logprobs: Sequence[float], candidates: Sequence[Sequence[tuple[int, float]]], beam_width: int
) -> list[Extension]:
    """The beams of the next step: over all beams, the extensions of the greatest probability.

    Args:
        cum_logprobs: for each beam, the sum of its tokens' log-probabilities.
        candidates: for each beam, some likely next tokens: (token id, log-probability).
        beam_width: how many go on; fewer, if there are not as many candidates.

    Returns:
        Best first. Of equals, the earlier beam's first, then the lower token.

    >>> best_extensions([-1.0, -2.0], [[(5, -3.0), (6, -0.5)], [(7, -0.25)]], beam_width=2)
    [Extension(parent=0, token_id=6, cum_logprob=-1.5), Extension(parent=1, token_id=7, cum_logprob=-2.25)]
    """
    # Exercise 4.6: your code here.
    raise NotYet("4.6", "best_extensions")


def follow(tables: Sequence[list[int]], parents: Sequence[int], pool: BlockPool) -> list[list[int]]:
    """Make the block tables those of the next step: a beam forks for each of its children, and is freed.

    Args:
        tables: of this step's beams.
        parents: for each beam of the next step, which of `tables` it goes on from. A beam may have
            several children, or none.
        pool: as above. Blocks that no table names any more go back into it.

    Returns:
        The tables of the next step's beams, in the order of `parents`. `tables` is not used any more.

    >>> pool = BlockPool(5)
    >>> first = [pool.allocate()]
    >>> second = [pool.allocate()]
    >>> follow([first, second], [1, 1], pool), pool.ref_cnt
    ([[2], [2]], [1, 0, 2, 0, 0])
    """
    # Exercise 4.6: your code here.
    raise NotYet("4.6", "follow")
