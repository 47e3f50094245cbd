"""Decode attention as work for several threads: the arguments, and who does which part.

Importing this module imports numba.
"""

from __future__ import annotations

import ctypes

import numpy as np

from minipaged.attention.cpu_decode_loops import attend_to_blocks
from minipaged.cpu.compiled import compiled, shared_work
from minipaged.cpu.instructions import as_array, pointer_like, pointer_to, take_part


class DecodeArguments(ctypes.Structure):
    """One query for each of `num_sequences` sequences; see `attend_to_blocks` for the shapes.

    A part is `heads_at_once` KV heads of one of the groups that `PrefixGroups` describes. `query_stride` is
    in heads, from one token to the next. `wrong_block` becomes 1 where a block table is too short, or holds
    what is no block.
    """

    _fields_ = (
        ("next_part", ctypes.c_int64),
        ("wrong_block", ctypes.c_int64),
        ("num_sequences", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("heads_at_once", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("query", ctypes.c_int64),
        ("query_stride", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("keys", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("num_blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        ("block_tables", ctypes.c_int64),
        ("table_length", ctypes.c_int64),
        ("seq_lens", ctypes.c_int64),
        ("num_groups", ctypes.c_int64),
        ("members", ctypes.c_int64),
        ("starts", ctypes.c_int64),
        ("shared", ctypes.c_int64),
        ("scores", ctypes.c_int64),
        ("longest", ctypes.c_int64),
        ("output", ctypes.c_int64),
    )


@compiled()
def _decode(pointer, like):
    """Takes parts until none is left; `like` is an array of the cache's numbers."""
    a = as_array(pointer, 1)[0]
    cache_shape = (a.num_blocks, a.block_size, a.num_kv_heads, a.head_dim)
    keys = as_array(pointer_like(a.keys, like), cache_shape)
    values = as_array(pointer_like(a.values, like), cache_shape)
    query = as_array(pointer_to(a.query, "float32"), (a.num_sequences, a.query_stride, a.head_dim))
    output = as_array(pointer_to(a.output, "float32"), (a.num_sequences, a.num_heads, a.head_dim))
    scores = as_array(pointer_to(a.scores, "float32"), (a.num_sequences, a.num_heads, a.longest))
    block_tables = as_array(pointer_to(a.block_tables, "int32"), (a.num_sequences, a.table_length))
    seq_lens = as_array(pointer_to(a.seq_lens, "int32"), (a.num_sequences,))
    all_members = as_array(pointer_to(a.members, "int32"), (a.num_sequences,))
    starts = as_array(pointer_to(a.starts, "int32"), (a.num_groups + 1,))
    shared = as_array(pointer_to(a.shared, "int32"), (a.num_groups,))
    parts_of_one = a.num_kv_heads // a.heads_at_once
    while True:
        part = take_part(pointer)
        if part >= a.num_groups * parts_of_one:
            break
        group, first = part // parts_of_one, part % parts_of_one * a.heads_at_once
        members = all_members[starts[group] : starts[group + 1]]
        num_shared, fits = int(shared[group]), True
        for s in members:
            seq_len = int(seq_lens[s])
            num_shared = min(num_shared, (seq_len - 1) // a.block_size)  # the last block may not be full
            if seq_len > a.longest or not _holds(block_tables[s], seq_len, a.block_size, a.num_blocks):
                fits = False
        if not fits:
            a.wrong_block = 1
            continue
        for kv_head in range(first, first + a.heads_at_once):
            attend_to_blocks(
                query,
                keys,
                values,
                block_tables,
                seq_lens,
                members,
                num_shared,
                kv_head,
                a.scale,
                scores,
                output,
            )


@compiled()
def _holds(block_table, seq_len, block_size, num_blocks):
    """Whether there is a block for each position."""
    length = (seq_len + block_size - 1) // block_size
    if length > len(block_table) or seq_len < 1:
        return False
    for block in block_table[:length]:  # noqa: SIM110 - compiled code has no all()
        if block < 0 or block >= num_blocks:
            return False
    return True


@shared_work(DecodeArguments)
def decode_float32(pointer):
    """Decode attention with a cache of float32."""
    _decode(pointer, np.empty(0, np.float32))


@shared_work(DecodeArguments)
def decode_bfloat16(pointer):
    """The same with a cache of bfloat16, as its bits."""
    _decode(pointer, np.empty(0, np.uint16))
