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
    ### BEGIN SOLUTION 3.1
    return position // block_size, position % block_size
    ### END SOLUTION


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
    ### BEGIN SOLUTION 3.1
    block, offset = translate(position, block_size)
    return block_table[block] * block_size + offset
    ### END SOLUTION


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
    ### BEGIN SOLUTION 3.2
    positions = np.arange(start, end, dtype=np.int64)  # [end - start]
    blocks, offsets = positions // block_size, positions % block_size
    # Convert before the multiplication: an int32 would overflow without a warning.
    return block_ids[blocks].astype(np.int64) * block_size + offsets
    ### END SOLUTION


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
        ### BEGIN SOLUTION 3.3
        self._stack = list(block_ids)[::-1]  # the next block is at the end, where a list is fast
        self._free = set(self._stack)
        ### END SOLUTION

    def pop(self) -> int:
        """Hand out a block.

        Raises:
            OutOfBlocksError: no block is free.
        """
        ### BEGIN SOLUTION 3.3
        if not self._stack:
            raise OutOfBlocksError("all blocks are in use")
        block_id = self._stack.pop()
        self._free.remove(block_id)
        return block_id
        ### END SOLUTION

    def push(self, block_id: int) -> None:
        """Take a block back.

        Raises:
            InvariantError: the block is free already.
        """
        ### BEGIN SOLUTION 3.3
        if block_id in self._free:
            raise InvariantError(f"block {block_id} is free already")
        self._stack.append(block_id)
        self._free.add(block_id)
        ### END SOLUTION

    def __len__(self) -> int:
        """How many blocks are free."""
        ### BEGIN SOLUTION 3.3
        return len(self._stack)
        ### END SOLUTION


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
    ### BEGIN SOLUTION 3.3
    needed = -(-num_tokens // block_size) - len(block_table)  # the division rounds up
    if needed > len(free_list):
        return False
    for _ in range(needed):
        block_table.append(free_list.pop())
    return True
    ### END SOLUTION


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
    ### BEGIN SOLUTION 3.4
    # The same memory, indexed by slot: two views, each [num_blocks * block_size, num_kv_heads, head_dim].
    keys, values = kv_layer.flatten(1, 2)
    keys[slot_mapping] = key
    values[slot_mapping] = value
    ### END SOLUTION


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
    ### BEGIN SOLUTION 3.4
    block_size = kv_layer.shape[2]
    num_blocks = -(-seq_len // block_size)
    blocks = block_table[:num_blocks].long()  # [num_blocks]
    keys, values = kv_layer[:, blocks].flatten(1, 2)[:, :seq_len]  # a copy, divided into keys and values
    return keys, values
    ### END SOLUTION


def pad_block_tables(tables: Sequence[BlockIds]) -> BlockIds:
    """The block tables of a batch as one array. Each row is padded with the null block.

    Args:
        tables: at least one; each a NumPy array, int32 `[its number of blocks]`.

    Returns:
        A NumPy array, int32 `[len(tables), M]`, with M the length of the longest table.

    >>> pad_block_tables([np.array([7, 9, 3], dtype=np.int32), np.array([5], dtype=np.int32)]).tolist()
    [[7, 9, 3], [5, 0, 0]]
    """
    ### BEGIN SOLUTION 3.5
    longest = max(len(table) for table in tables)
    padded = np.full((len(tables), longest), NULL_BLOCK, dtype=np.int32)  # [S, M]
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded
    ### END SOLUTION


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
    ### BEGIN SOLUTION 3.5
    output = torch.empty_like(query)
    starts = metadata.query_start_list
    for s, seq_len in enumerate(metadata.seq_lens_list):
        keys, values = gather(kv_layer, metadata.block_tables[s], seq_len)
        rows = slice(starts[s], starts[s + 1])
        output[rows] = attend_one(query[rows], keys, values, scale)
    return output
    ### END SOLUTION
