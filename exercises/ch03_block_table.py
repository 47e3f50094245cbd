"""Chapter 3, block table: where a token's keys and values are, and how to write and read them.

A *block* has room for `block_size` tokens. The pool is an array of *physical* blocks, numbered from 0. A
sequence is divided into *logical* blocks: tokens 0 to block_size − 1 are in logical block 0, and so on. Entry
i of its *block table* is the physical block of logical block i. A *slot* is the place of one token in the
pool: `physical block × block_size + offset`.

Physical block 0 is the *null block*. It pads tables, and holds no token of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.reference import attend_one
from minipaged.course import NotYet
from minipaged.errors import InvariantError, OutOfBlocksError
from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.kv.block_table import BlockIds, Slots


def translate(position: int, block_size: int) -> tuple[int, int]:
    """The logical block of a token, and its offset in that block.

    Args:
        position: the token's position in its sequence, from 0.
        block_size: tokens per block.

    >>> translate(35, block_size=16)
    (2, 3)
    """
    # Exercise 3.1: your code here.
    raise NotYet("3.1", "translate")


def slot_of(block_table: Sequence[int], position: int, block_size: int) -> int:
    """The slot of one token.

    Args:
        block_table: the sequence's physical blocks, in the order of its logical blocks.
        position: the token's position in its sequence, from 0. The table covers it.
        block_size: tokens per block.

    Position 5 is in logical block 1, at offset 1. Logical block 1 is physical block 9:

    >>> slot_of([7, 9, 3], 5, block_size=4)
    37
    """
    # Exercise 3.1: your code here.
    raise NotYet("3.1", "slot_of")


def slot_mapping(block_ids: BlockIds, start: int, end: int, block_size: int) -> Slots:
    """The slots of the tokens at positions `start` to `end - 1` of one sequence.

    Args:
        block_ids: the sequence's block table, a NumPy array, int32 `[num_blocks]`. It covers position
            `end - 1`.
        start: first position.
        end: one past the last position; above `start`.
        block_size: tokens per block.

    Returns:
        A NumPy array, int64 `[end - start]`. In a large pool, slots do not fit into an int32.

    >>> slot_mapping(np.array([7, 9, 3], dtype=np.int32), 2, 6, block_size=4).tolist()
    [30, 31, 36, 37]
    """
    # Exercise 3.2: your code here.
    raise NotYet("3.2", "slot_mapping")


class FreeList:
    """The free physical blocks, which no sequence holds.

    At first, blocks are handed out in the given order. Later, the block that was freed last is handed out
    first.

    Args:
        block_ids: the blocks that are free at the beginning, each once.

    >>> free_list = FreeList([7, 1, 3])
    >>> free_list.pop(), free_list.pop(), len(free_list)
    (7, 1, 1)
    >>> free_list.push(7)
    >>> free_list.pop()
    7
    """

    def __init__(self, block_ids: Iterable[int]) -> None:
        # Exercise 3.3: your code here.
        raise NotYet("3.3", "FreeList.__init__")

    def pop(self) -> int:
        """Hand out a block.

        Raises:
            OutOfBlocksError: no block is free.
        """
        # Exercise 3.3: your code here.
        raise NotYet("3.3", "FreeList.pop")

    def push(self, block_id: int) -> None:
        """Take a block back.

        Raises:
            InvariantError: the block is free already.
        """
        # Exercise 3.3: your code here.
        raise NotYet("3.3", "FreeList.push")

    def __len__(self) -> int:
        """How many blocks are free."""
        # Exercise 3.3: your code here.
        raise NotYet("3.3", "FreeList.__len__")


def grow(block_table: list[int], num_tokens: int, block_size: int, free_list: FreeList) -> bool:
    """Make a block table just long enough for `num_tokens` tokens.

    Either the table gets all missing blocks, or nothing changes.

    Args:
        block_table: the sequence's table. New blocks are appended to it.
        num_tokens: all tokens that need a slot, including those that have one already. It never gets smaller.
        block_size: tokens per block.
        free_list: the list to take blocks from.

    Returns:
        Whether there were enough free blocks.

    >>> table, free_list = [7], FreeList([1, 3])
    >>> grow(table, 5, block_size=4, free_list=free_list), table
    (True, [7, 1])
    >>> grow(table, 8, block_size=4, free_list=free_list), table
    (True, [7, 1])
    """
    # Exercise 3.3: your code here.
    raise NotYet("3.3", "grow")


def write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """Store the keys and values of T tokens in their slots, in place.

    Args:
        kv_layer: one layer's cache, `[2, num_blocks, block_size, num_kv_heads, head_dim]`: keys at
            index 0 of the first dimension, values at index 1. Contiguous.
        key: `[T, num_kv_heads, head_dim]`.
        value: as `key`.
        slot_mapping: int64 `[T]`, the slot of each token. No slot occurs twice.

    Two tokens, into slots 5 and 2 of three blocks of 2:

    >>> layer = torch.zeros(2, 3, 2, 1, 1)
    >>> ones = torch.ones(2, 1, 1)
    >>> write_kv(layer, key=ones, value=3 * ones, slot_mapping=torch.tensor([5, 2]))
    >>> layer[0].flatten().tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    >>> layer[1].flatten().tolist()
    [0.0, 0.0, 3.0, 0.0, 0.0, 3.0]
    """
    # Exercise 3.4: your code here.
    raise NotYet("3.4", "write_kv")


def gather(kv_layer: Tensor, block_table: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
    """Collect the keys and values of one sequence from its blocks, in order.

    Args:
        kv_layer: one layer's cache, as in `write_kv`.
        block_table: int32 `[M]`. Its first entries cover `seq_len` tokens; later entries are padding.
        seq_len: tokens to collect. The later slots of the last block may hold any values, which an earlier
            sequence left there.

    Returns:
        Keys and values, each `[seq_len, num_kv_heads, head_dim]`.

    >>> layer = torch.arange(12.0).reshape(2, 3, 2, 1, 1)  # slot i has the key i and the value 6 + i
    >>> keys, values = gather(layer, torch.tensor([2, 1, 0], dtype=torch.int32), seq_len=3)
    >>> keys.flatten().tolist(), values.flatten().tolist()
    ([4.0, 5.0, 2.0], [10.0, 11.0, 8.0])
    """
    # Exercise 3.4: your code here.
    raise NotYet("3.4", "gather")


def pad_block_tables(tables: Sequence[BlockIds]) -> BlockIds:
    """The block tables of a batch as one array. Each row is padded with the null block.

    Args:
        tables: at least one; each a NumPy array, int32 `[its number of blocks]`.

    Returns:
        A NumPy array, int32 `[len(tables), M]`, with M the length of the longest table.

    >>> pad_block_tables([np.array([7, 9, 3], dtype=np.int32), np.array([5], dtype=np.int32)]).tolist()
    [[7, 9, 3], [5, 0, 0]]
    """
    # Exercise 3.5: your code here.
    raise NotYet("3.5", "pad_block_tables")


def paged_attention(query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
    """Attention in one step of S sequences, with T query tokens in all, over keys and values in blocks.

    The step computes the *last* few tokens of each sequence: one in a decode, all in a prompt. Their keys and
    values are already in the cache. For the attention itself, use `attend_one(query, keys, values, scale)`,
    which is imported above. It takes one sequence's queries `[Q, num_heads, head_dim]`, the last Q of L
    tokens, and the L keys and values in order `[L, num_kv_heads, head_dim]`. It masks the future and returns
    `[Q, num_heads, head_dim]`.

    Args:
        query: `[T, num_heads, head_dim]`, the sequences one after the other, without padding.
        kv_layer: one layer's cache, as in `write_kv`.
        metadata: you need three of its fields.
            `query_start_list` has S + 1 integers: sequence s has the rows from entry s up to, but not
            including, entry s + 1.
            `seq_lens_list` has S integers: the number of tokens of each sequence, including this step's.
            `block_tables` is a tensor, int32 `[S, M]`: row s is the padded table of sequence s.
        scale: multiplies the scores.

    Returns:
        `[T, num_heads, head_dim]`.
    """
    # Exercise 3.5: your code here.
    raise NotYet("3.5", "paged_attention")
