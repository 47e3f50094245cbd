"""Attention as work for several threads: its arguments, and how it is divided into parts.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np

from minipaged.cpu.attention.loops import attend_group, workspace_for, workspace_size
from minipaged.cpu.compiler.compiled import compiled, shared_work
from minipaged.cpu.compiler.instructions import aligned, as_array, pointer_like, pointer_to, take_part


class AttentionArguments(ctypes.Structure):
    """Arguments for a step's attention. `attend_group` and `QueryGroups` describe the shapes.

    A part of the work is one group, for one of the KV heads or for all of them. `query_stride` is the
    distance from one token to the next, in heads. `wrong_block` is set to 1 if a block table is too short, or
    holds an id that is not the id of a block.
    """

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("wrong_block", ctypes.c_int64),
        ("num_tokens", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("num_threads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("query", ctypes.c_int64),
        ("query_stride", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("keys", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("num_blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("num_sequences", ctypes.c_int64),
        ("block_tables", ctypes.c_int64),
        ("table_length", ctypes.c_int64),
        ("sequences", ctypes.c_int64),
        ("lengths", ctypes.c_int64),
        ("num_groups", ctypes.c_int64),
        ("members", ctypes.c_int64),
        ("starts", ctypes.c_int64),
        ("shared", ctypes.c_int64),
        ("output", ctypes.c_int64),
    )


@compiled()
def _attend(pointer, like):
    """Compute parts until none is left.

    `like` is an array in the dtype of the cache, the queries and the output.
    """
    a = as_array(pointer, 1)[0]
    cache_shape = (a.num_blocks, a.block_size, a.num_kv_heads, a.head_dim)
    keys = as_array(pointer_like(a.keys, like), cache_shape)
    values = as_array(pointer_like(a.values, like), cache_shape)
    query = as_array(pointer_like(a.query, like), (a.num_tokens, a.query_stride, a.head_dim))
    output = as_array(pointer_like(a.output, like), (a.num_tokens, a.num_heads, a.head_dim))
    block_tables = as_array(pointer_to(a.block_tables, "int32"), (a.num_sequences, a.table_length))
    sequences = as_array(pointer_to(a.sequences, "int32"), (a.num_tokens,))
    lengths = as_array(pointer_to(a.lengths, "int32"), (a.num_tokens,))
    all_members = as_array(pointer_to(a.members, "int32"), (a.num_tokens,))
    starts = as_array(pointer_to(a.starts, "int32"), (a.num_groups + 1,))
    shared = as_array(pointer_to(a.shared, "int32"), (a.num_groups,))
    most_members = num_filled = 0
    for group in range(a.num_groups):
        num_members = starts[group + 1] - starts[group]
        most_members = max(most_members, num_members)
        num_filled += num_members > 0
    # A token's heads lie side by side, so one thread should read all of them if there are enough parts for
    # all threads.
    whole = a.num_threads == 1 or num_filled >= 2 * a.num_threads
    heads_at_once = a.num_kv_heads if whole else 1
    num_rows = most_members * (a.num_heads // a.num_kv_heads)
    buffer = aligned(workspace_size(num_rows, a.head_dim))
    workspace = workspace_for(num_rows, a.head_dim, buffer)
    parts_of_one = a.num_kv_heads // heads_at_once
    while True:
        part = take_part(pointer)
        if part >= a.num_groups * parts_of_one:
            break
        group, first = part // parts_of_one, part % parts_of_one * heads_at_once
        members = all_members[starts[group] : starts[group + 1]]
        if len(members) == 0:
            continue
        if not _hold(block_tables, sequences, lengths, members, a.block_size, a.num_blocks):
            a.wrong_block = 1
            continue
        for kv_head in range(first, first + heads_at_once):
            attend_group(
                query,
                keys,
                values,
                block_tables,
                sequences,
                lengths,
                members,
                shared[group],
                kv_head,
                a.scale,
                workspace,
                output,
            )
    buffer[0] = 0  # so that numba keeps the buffer alive until here


@compiled()
def _hold(block_tables, sequences, lengths, members, block_size, num_blocks):
    """Whether the members' block tables have a valid block for each position."""
    for i in range(len(members)):
        sequence, length = sequences[members[i]], lengths[members[i]]
        if i + 1 < len(members) and sequences[members[i + 1]] == sequence:
            continue  # a sequence's last token attends to the most tokens
        num_entries = (length + block_size - 1) // block_size
        if num_entries > block_tables.shape[1] or length < 1:
            return False
        for block in block_tables[sequence, :num_entries]:
            if block < 0 or block >= num_blocks:
                return False
    return True


@shared_work(AttentionArguments)
def attend_float32(pointer):
    """Attention in float32."""
    _attend(pointer, np.empty(0, np.float32))


@shared_work(AttentionArguments)
def attend_bfloat16(pointer):
    """Attention in bfloat16. The numbers are passed as their bits, in uint16."""
    _attend(pointer, np.empty(0, np.uint16))
