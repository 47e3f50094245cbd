"""The loop that all attention kernels share: queries in a tile, keys and values through a block table.

The softmax is "online" (Milakov and Gimelshein, arXiv 1805.02867; FlashAttention, arXiv 2205.14135):
one pass over the tokens, in which three numbers are kept for each query: the greatest score so far,
the sum of all weights so far, and the weighted sum of values so far. A new greatest score scales the
other two down.

Scores are in units of log 2, because 2ˣ is the instruction that GPUs have: callers multiply `scale`
by `LOG2_E`.
"""

import torch
import triton
import triton.language as tl

from minipaged.triton_kernels.setup import is_interpreted

LOG2_E = 1.4426950408889634

# Where the running maximum begins. Were it −inf, a tile without a visible token would compute
# 2^(−inf − −inf), which is NaN; from a finite number, −inf is as far away as it should be.
LOWEST: tl.constexpr = tl.constexpr(-1e38)

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def dot_dtype(dtype: torch.dtype) -> tl.dtype:
    """What `attend` multiplies in: the cache's dtype, which tensor cores take as it is. But the
    interpreter's `tl.dot` takes the bits of bfloat16 numbers for integers, so there it is float32."""
    return tl.float32 if is_interpreted() and dtype == torch.bfloat16 else _DTYPES[dtype]


@triton.jit
def attend(
    queries,  # [M, PADDED_DIM]; zeros beyond HEAD_DIM
    query_positions,  # int32 [M]: each query sees the tokens up to this position
    keys,  # pointer to the keys of one head, in slot 0 of block 0
    values,  # likewise
    block_table,  # pointer to the sequence's row
    begin,
    end,  # the tokens to look at: begin, ..., end - 1
    scale,
    block_stride,
    slot_stride,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,  # the next power of two, which Triton's tiles need
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # tokens that are looked at together: any number of blocks, or part of one
    DOT_DTYPE: tl.constexpr,  # what the products are computed in: see `dot_dtype`
):
    """Attend from M queries of one sequence to some of its tokens.

    Returns:
        The greatest scores [M], the sums of the weights [M], and the weighted sums of values
        [M, PADDED_DIM], all float32; 2^(score − greatest) is a token's weight.
    """
    M: tl.constexpr = queries.shape[0]
    dims = tl.arange(0, PADDED_DIM)  # [PADDED_DIM]
    greatest = tl.full([M], LOWEST, tl.float32)  # [M]
    total = tl.full([M], 0.0, tl.float32)  # [M]
    output = tl.full([M, PADDED_DIM], 0.0, tl.float32)  # [M, PADDED_DIM]
    for start in range(begin, end, TILE):
        positions = start + tl.arange(0, TILE)  # [TILE]
        inside = positions < end  # [TILE]
        block_ids = tl.load(block_table + positions // BLOCK_SIZE, mask=inside, other=0)  # int32 [TILE]
        # To 64 bits before the multiplication: a product past 2³¹ would wrap to some other block, silently.
        slots = block_ids.to(tl.int64) * block_stride + (positions % BLOCK_SIZE) * slot_stride  # [TILE]
        offsets = slots[:, None] + dims[None, :]  # [TILE, PADDED_DIM]
        # Slots past the end may hold NaN, and a weight of 0 does not cancel it: they are not loaded.
        loaded = inside[:, None] & (dims < HEAD_DIM)[None, :]  # [TILE, PADDED_DIM]
        tile_keys = tl.load(keys + offsets, mask=loaded, other=0.0)  # [TILE, PADDED_DIM]
        tile_values = tl.load(values + offsets, mask=loaded, other=0.0)  # [TILE, PADDED_DIM]

        # "ieee", or float32 would be rounded to TF32's 10 bits.
        keys_by_dim = tl.trans(tile_keys).to(DOT_DTYPE)  # [PADDED_DIM, TILE]
        scores = tl.dot(queries.to(DOT_DTYPE), keys_by_dim, input_precision="ieee") * scale  # [M, TILE]
        visible = inside[None, :] & (positions[None, :] <= query_positions[:, None])  # [M, TILE]
        scores = tl.where(visible, scores, float("-inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, 1))  # [M]
        weights = tl.exp2(scores - new_greatest[:, None])  # [M, TILE]
        shrink = tl.exp2(greatest - new_greatest)  # [M]
        total = total * shrink + tl.sum(weights, 1)
        weights = weights.to(tile_values.dtype).to(DOT_DTYPE)  # rounded as the values are, for tensor cores
        output = output * shrink[:, None]
        output = tl.dot(weights, tile_values.to(DOT_DTYPE), output, input_precision="ieee")
        greatest = new_greatest
    return greatest, total, output
