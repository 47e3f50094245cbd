"""Chapter 5, the paged kernel: attention that reads keys and values through the block table.

The cache of one layer is `[2, num_blocks, block_size, num_kv_heads, head_dim]`: keys at index 0 of the first
dimension, values at index 1. The strides of its first four dimensions are numbers of elements: from the keys
to the values, from a block to the next, from a slot to the next, and from a KV head to the next. The last
dimension is contiguous.

A kernel is a function that runs many times, as *programs*. `tl.program_id(axis)` says which program this
is. A tensor that is an argument becomes a pointer to its first element. `tl.load(pointer + offsets, mask=...,
other=...)` reads, and `tl.store(pointer + offsets, values, mask=...)` writes. `tl.arange(0, N)` needs a
constant N that is a power of two. So block sizes and head dimensions are powers of two in exercises 5.2 to
5.4, and at least 16 in 5.3 and 5.4.

Without a GPU the kernels run under Triton's interpreter, where `print` works.
"""

# pyright: reportCallIssue=false, reportArgumentType=false
# (A launch with `*strides`, and numbers for constants of the compiler.)

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.course.ch05.rung import tl, triton

LOWEST = -1e38
"""A start for a running maximum. It is below every score, and unlike −inf it can be subtracted from −inf."""


def tiled_attention(scores: Tensor, values: Tensor, tile: int) -> Tensor:
    """Softmax of each row of scores, times the values, in one pass over tiles of the tokens.

    The function looks at `tile` tokens at a time, from left to right, and at each token once. Between tiles
    it keeps three results for each row: the greatest score so far, the sum of the weights so far, and the
    weighted sum of the values so far. A token's weight is `exp(score - greatest)`.

    Args:
        scores: float32 `[Q, L]`. A score of −inf is a token that the row does not see. Whole tiles may be
            −inf.
        values: float32 `[L, head_dim]`.
        tile: tokens in a tile, at least 1. The last tile may be shorter.

    Returns:
        `[Q, head_dim]`. A row that sees no token gets zeros.

    Equal scores give the mean of the values:

    >>> tiled_attention(torch.zeros(1, 3), torch.tensor([[1.0], [2.0], [6.0]]), tile=2)
    tensor([[3.]])
    """
    ### BEGIN SOLUTION 5.1
    num_queries, num_tokens = scores.shape
    greatest = torch.full((num_queries, 1), LOWEST)
    total = torch.zeros(num_queries, 1)
    output = torch.zeros(num_queries, values.shape[1])
    for start in range(0, num_tokens, tile):
        part = scores[:, start : start + tile]  # [Q, tile]
        new_greatest = torch.maximum(greatest, part.amax(dim=1, keepdim=True))
        weights = torch.exp(part - new_greatest)
        shrink = torch.exp(greatest - new_greatest)  # what was summed so far used the old maximum
        total = total * shrink + weights.sum(dim=1, keepdim=True)
        output = output * shrink + weights @ values[start : start + tile]
        greatest = new_greatest
    return output / torch.where(total == 0, 1.0, total)
    ### END SOLUTION


def paged_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
) -> Tensor:
    """Attention of a decode step: the last token of each sequence looks at all tokens of its sequence.

    Launch `decode_kernel` with one program for each query head of each sequence: axis 0 of the grid is the
    query head, and axis 1 the sequence. `kernel[(2, 3)](...)` launches 2 × 3 programs.

    Args:
        query: `[S, num_heads, head_dim]`.
        kv_layer: one layer's cache.
        block_tables: int32 `[S, M]`.
        seq_lens: int32 `[S]`, tokens of each sequence; the keys and values of all are in the cache.
        scale: multiplies the scores.

    Returns:
        `[S, num_heads, head_dim]`.
    """
    ### BEGIN SOLUTION 5.2
    query = query.contiguous()
    output = torch.empty_like(query)  # [S, num_heads, head_dim]
    num_seqs, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    decode_kernel[(num_heads, num_seqs)](
        query,
        output,
        kv_layer,
        block_tables,
        seq_lens,
        scale,
        *kv_layer.stride()[:4],
        block_tables.stride(0),
        GROUP=num_heads // num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
    )
    return output
    ### END SOLUTION


@triton.jit
def decode_kernel(
    query,  # [S, num_heads, head_dim], contiguous
    output,  # as query
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # int32 [S, M]
    seq_lens,  # int32 [S]
    scale,
    values_stride,  # from the keys to the values
    block_stride,
    slot_stride,
    kv_head_stride,
    table_stride,  # from a row of block_tables to the next
    GROUP: tl.constexpr,  # query heads that share a KV head: query head h uses KV head h // GROUP
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """One query head of one sequence: a loop over the blocks of the sequence.

    Slots of the last block that are not in use may hold NaN. Such a slot must not be loaded: a weight of 0
    times NaN is NaN. A block id times `block_stride` may exceed 2³¹: convert it before, `.to(tl.int64)`.
    """
    ### BEGIN SOLUTION 5.2
    head, seq = tl.program_id(0), tl.program_id(1)
    seq_len = tl.load(seq_lens + seq)
    dims = tl.arange(0, HEAD_DIM)  # [HEAD_DIM]
    slots = tl.arange(0, BLOCK_SIZE)  # [BLOCK_SIZE]
    row = (seq * tl.num_programs(0) + head) * HEAD_DIM
    one_query = tl.load(query + row + dims).to(tl.float32)  # [HEAD_DIM]
    keys = kv_layer + (head // GROUP) * kv_head_stride

    greatest = -1e38
    total = 0.0
    result = tl.zeros([HEAD_DIM], tl.float32)
    for i in range(tl.cdiv(seq_len, BLOCK_SIZE)):
        block = tl.load(block_tables + seq * table_stride + i).to(tl.int64)
        inside = i * BLOCK_SIZE + slots < seq_len  # [BLOCK_SIZE]
        at = block * block_stride + slots[:, None] * slot_stride + dims[None, :]  # [BLOCK_SIZE, HEAD_DIM]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(keys + values_stride + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(k * one_query[None, :], 1) * scale  # [BLOCK_SIZE]
        scores = tl.where(inside, scores, float("-inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, 0))
        weights = tl.exp(scores - new_greatest)  # [BLOCK_SIZE]
        shrink = tl.exp(greatest - new_greatest)
        total = total * shrink + tl.sum(weights, 0)
        result = result * shrink + tl.sum(weights[:, None] * v, 0)
        greatest = new_greatest
    tl.store(output + row + dims, (result / total).to(output.dtype.element_ty))
    ### END SOLUTION


def grouped_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
) -> Tensor:
    """As `paged_decode`, with one program for each *KV head* of each sequence.

    Launch `grouped_kernel`: axis 0 of the grid is the KV head, and axis 1 the sequence. `tl.dot` multiplies
    tiles of at least 16 rows, so ROWS is the group's size, rounded up to a power of two that is 16 or more.
    """
    ### BEGIN SOLUTION 5.3
    query = query.contiguous()
    output = torch.empty_like(query)  # [S, num_heads, head_dim]
    num_seqs, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    group = num_heads // num_kv_heads
    grouped_kernel[(num_kv_heads, num_seqs)](
        query,
        output,
        kv_layer,
        block_tables,
        seq_lens,
        scale,
        *kv_layer.stride()[:4],
        block_tables.stride(0),
        GROUP=group,
        ROWS=max(16, triton.next_power_of_2(group)),
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
    )
    return output
    ### END SOLUTION


@triton.jit
def grouped_kernel(
    query,
    output,
    kv_layer,
    block_tables,
    seq_lens,
    scale,
    values_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    table_stride,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,  # rows of the tile: GROUP, padded
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """All query heads of one KV head of one sequence. Arguments as in `decode_kernel`.

    Query head `kv_head * GROUP + row` is row `row` of the tile. Rows beyond GROUP are padding: they are not
    loaded and not stored. The loop over the blocks is in `attend_blocks`.
    """
    ### BEGIN SOLUTION 5.3
    kv_head, seq = tl.program_id(0), tl.program_id(1)
    seq_len = tl.load(seq_lens + seq)
    rows = tl.arange(0, ROWS)  # [ROWS]
    dims = tl.arange(0, HEAD_DIM)  # [HEAD_DIM]
    heads = (seq * tl.num_programs(0) + kv_head) * GROUP + rows  # [ROWS]
    used = (rows < GROUP)[:, None]  # [ROWS, 1]
    at = heads[:, None] * HEAD_DIM + dims[None, :]  # [ROWS, HEAD_DIM]
    queries = tl.load(query + at, mask=used, other=0.0)  # [ROWS, HEAD_DIM]
    _, total, result = attend_blocks(
        queries,
        kv_layer + kv_head * kv_head_stride,
        block_tables + seq * table_stride,
        0,
        tl.cdiv(seq_len, BLOCK_SIZE),
        seq_len,
        scale,
        values_stride,
        block_stride,
        slot_stride,
        ROWS,
        HEAD_DIM,
        BLOCK_SIZE,
    )
    tl.store(output + at, (result / total[:, None]).to(output.dtype.element_ty), mask=used)
    ### END SOLUTION


@triton.jit
def attend_blocks(
    queries,  # [ROWS, HEAD_DIM]
    keys,  # pointer to the KV head's key in slot 0 of block 0
    table,  # pointer to the sequence's row of block_tables
    first,  # the first logical block to look at
    end,  # one past the last one; may be `first` or less, then there is nothing to look at
    seq_len,
    scale,
    values_stride,
    block_stride,
    slot_stride,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """The loop over some blocks of a sequence, for all rows of a tile.

    `tl.dot(a, b, input_precision="ieee")` multiplies two tiles. Without "ieee", a GPU rounds float32 factors
    to TF32, with a mantissa of 10 bits. Both factors need the same dtype.

    Returns:
        The greatest scores `[ROWS]`, beginning with −1e38; the sums of the weights `[ROWS]`; and the weighted
        sums of the values `[ROWS, HEAD_DIM]`, not yet divided. All are float32.
    """
    ### BEGIN SOLUTION 5.3
    dims = tl.arange(0, HEAD_DIM)  # [HEAD_DIM]
    slots = tl.arange(0, BLOCK_SIZE)  # [BLOCK_SIZE]
    greatest = tl.full([ROWS], -1e38, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for i in range(first, end):
        block = tl.load(table + i).to(tl.int64)
        inside = i * BLOCK_SIZE + slots < seq_len  # [BLOCK_SIZE]
        at = block * block_stride + slots[:, None] * slot_stride + dims[None, :]  # [BLOCK_SIZE, HEAD_DIM]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0)
        v = tl.load(keys + values_stride + at, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale  # [ROWS, BLOCK_SIZE]
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, 1))  # [ROWS]
        weights = tl.exp(scores - new_greatest[:, None])  # [ROWS, BLOCK_SIZE]
        shrink = tl.exp(greatest - new_greatest)  # [ROWS]
        total = total * shrink + tl.sum(weights, 1)
        result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        greatest = new_greatest
    return greatest, total, result
    ### END SOLUTION


def split_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float, num_splits: int
) -> Tensor:
    """As `grouped_decode`, with `num_splits` programs for each KV head of each sequence.

    Launch `part_kernel`: axis 0 of the grid is the KV head, axis 1 the part, and axis 2 the sequence. Then
    `merge` its results. They are float32, `[S, num_heads, num_splits, head_dim]` and
    `[S, num_heads, num_splits]`.

    Args:
        num_splits: at least 1. There may be more parts than blocks.
    """
    ### BEGIN SOLUTION 5.4
    query = query.contiguous()
    num_seqs, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    group = num_heads // num_kv_heads
    outputs = query.new_empty(num_seqs, num_heads, num_splits, head_dim, dtype=torch.float32)
    log_sums = query.new_empty(num_seqs, num_heads, num_splits, dtype=torch.float32)
    part_kernel[(num_kv_heads, num_splits, num_seqs)](
        query,
        outputs,
        log_sums,
        kv_layer,
        block_tables,
        seq_lens,
        scale,
        *kv_layer.stride()[:4],
        block_tables.stride(0),
        GROUP=group,
        ROWS=max(16, triton.next_power_of_2(group)),
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
    )
    return merge(outputs, log_sums).to(query.dtype)
    ### END SOLUTION


@triton.jit
def part_kernel(
    query,
    outputs,  # float32 [S, num_heads, num_splits, head_dim], contiguous
    log_sums,  # float32 [S, num_heads, num_splits], contiguous
    kv_layer,
    block_tables,
    seq_lens,
    scale,
    values_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    table_stride,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """One part of the blocks of a sequence, for all query heads of a KV head.

    Each part has the same number of blocks, rounded up, so the last parts may have fewer or none. A part
    stores its own softmax result, already divided, and `greatest + log(total)` of it. A part without blocks
    stores zeros and −inf.
    """
    ### BEGIN SOLUTION 5.4
    kv_head, split, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_splits = tl.num_programs(1)
    seq_len = tl.load(seq_lens + seq)
    num_blocks = tl.cdiv(seq_len, BLOCK_SIZE)
    per_part = tl.cdiv(num_blocks, num_splits)
    rows = tl.arange(0, ROWS)  # [ROWS]
    dims = tl.arange(0, HEAD_DIM)  # [HEAD_DIM]
    heads = (seq * tl.num_programs(0) + kv_head) * GROUP + rows  # [ROWS]
    used = rows < GROUP  # [ROWS]
    at = heads[:, None] * HEAD_DIM + dims[None, :]  # [ROWS, HEAD_DIM]
    queries = tl.load(query + at, mask=used[:, None], other=0.0)  # [ROWS, HEAD_DIM]
    greatest, total, result = attend_blocks(
        queries,
        kv_layer + kv_head * kv_head_stride,
        block_tables + seq * table_stride,
        split * per_part,
        tl.minimum((split + 1) * per_part, num_blocks),
        seq_len,
        scale,
        values_stride,
        block_stride,
        slot_stride,
        ROWS,
        HEAD_DIM,
        BLOCK_SIZE,
    )
    empty = total == 0.0  # [ROWS]
    total = tl.where(empty, 1.0, total)
    log_sum = tl.where(empty, float("-inf"), greatest + tl.log(total))  # [ROWS]
    part = heads * num_splits + split  # [ROWS]
    tl.store(outputs + part[:, None] * HEAD_DIM + dims[None, :], result / total[:, None], mask=used[:, None])
    tl.store(log_sums + part, log_sum, mask=used)
    ### END SOLUTION


def merge(outputs: Tensor, log_sums: Tensor) -> Tensor:
    """The softmax result over all parts, from the parts' own results. In PyTorch.

    Args:
        outputs: float32 `[..., num_splits, head_dim]`, each part's result.
        log_sums: float32 `[..., num_splits]`: the logarithm of the sum of `exp(score)` over the part's
            tokens; −inf for a part without tokens. At least one part has tokens.

    Returns:
        `[..., head_dim]`.

    A part with three times the sum has three times the weight:

    >>> merge(torch.tensor([[1.0], [5.0]]), torch.tensor([1.0, 3.0]).log())
    tensor([4.])
    """
    ### BEGIN SOLUTION 5.4
    weights = torch.softmax(log_sums, dim=-1)  # [..., num_splits]
    return (weights[..., None] * outputs).sum(dim=-2)
    ### END SOLUTION


def write_kv(kv_layer: Tensor, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """Store the keys and values of T tokens in their slots, in place.

    Launch `write_kernel` with one program for each token. Without tokens, launch nothing: a grid of 0
    programs is an error on a GPU.

    Args:
        kv_layer: one layer's cache.
        key: `[T, num_kv_heads, head_dim]`. Its last dimension is contiguous; the others need not be, since
            the engine passes parts of a larger tensor.
        value: as `key`; its strides may differ from those of `key`.
        slot_mapping: int64 `[T]`. A token with slot −1 is padding, and is not stored. No slot occurs twice.
    """
    ### BEGIN SOLUTION 5.5
    num_tokens, num_kv_heads, head_dim = key.shape
    if num_tokens == 0:
        return
    write_kernel[(num_tokens,)](
        kv_layer,
        key,
        value,
        slot_mapping,
        *kv_layer.stride()[:4],
        *key.stride()[:2],
        *value.stride()[:2],
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=kv_layer.shape[2],
        PADDED=triton.next_power_of_2(num_kv_heads * head_dim),
    )
    ### END SOLUTION


@triton.jit
def write_kernel(
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    key,  # [T, num_kv_heads, head_dim]
    value,  # as key
    slot_mapping,  # int64 [T]
    values_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    key_stride,  # from a token to the next
    key_head_stride,
    value_stride,
    value_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,  # any number
    PADDED: tl.constexpr,  # NUM_KV_HEADS * HEAD_DIM, padded to a power of two
):
    """One token: copy its key and its value, all heads at once, into the token's slot.

    Slot s is slot `s % BLOCK_SIZE` of block `s // BLOCK_SIZE`.
    """
    ### BEGIN SOLUTION 5.5
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)  # int64, so the products below are int64 too
    if slot < 0:
        return
    numbers = tl.arange(0, PADDED)  # [PADDED]
    head, dim = numbers // HEAD_DIM, numbers % HEAD_DIM
    stored = numbers < NUM_KV_HEADS * HEAD_DIM  # [PADDED]
    k = tl.load(key + token * key_stride + head * key_head_stride + dim, mask=stored)
    v = tl.load(value + token * value_stride + head * value_head_stride + dim, mask=stored)
    at = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * slot_stride + head * kv_head_stride + dim
    tl.store(kv_layer + at, k, mask=stored)
    tl.store(kv_layer + values_stride + at, v, mask=stored)
    ### END SOLUTION
