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

from minipaged.course import NotYet
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
    # Exercise 5.1: your code here.
    raise NotYet("5.1", "tiled_attention")


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
    # Exercise 5.2: your code here.
    raise NotYet("5.2", "paged_decode")


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
    # Exercise 5.2: your code here.
    raise NotYet("5.2", "decode_kernel")


def grouped_decode(
    query: Tensor, kv_layer: Tensor, block_tables: Tensor, seq_lens: Tensor, scale: float
) -> Tensor:
    """As `paged_decode`, with one program for each *KV head* of each sequence.

    Launch `grouped_kernel`: axis 0 of the grid is the KV head, and axis 1 the sequence. `tl.dot` multiplies
    tiles of at least 16 rows, so ROWS is the group's size, rounded up to a power of two that is 16 or more.
    """
    # Exercise 5.3: your code here.
    raise NotYet("5.3", "grouped_decode")


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
    # Exercise 5.3: your code here.
    raise NotYet("5.3", "grouped_kernel")


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
    # Exercise 5.3: your code here.
    raise NotYet("5.3", "attend_blocks")


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
    # Exercise 5.4: your code here.
    raise NotYet("5.4", "split_decode")


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
    # Exercise 5.4: your code here.
    raise NotYet("5.4", "part_kernel")


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
    # Exercise 5.4: your code here.
    raise NotYet("5.4", "merge")


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
    # Exercise 5.5: your code here.
    raise NotYet("5.5", "write_kv")


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
    # Exercise 5.5: your code here.
    raise NotYet("5.5", "write_kernel")
