"""The loop that all attention kernels share: queries in a tile, keys and values through a block table.

The softmax is "online" (Milakov and Gimelshein, arXiv 1805.02867; FlashAttention, arXiv 2205.14135):
it makes one pass over the tokens, and keeps three results for each query: the greatest score so far, the sum
of all weights so far, and the weighted sum of values so far. When a greater score appears, the two sums are
scaled down to it.

GPUs have an instruction for 2ˣ but none for eˣ. So scores are used as exponents of 2, and callers multiply
`scale` by `LOG2_E`.

While one tile is multiplied, the keys and values of the next are being loaded. The compiler arranges this
("software pipelining", `num_stages` in `tiles`), but only for loads whose addresses are known early. Here
the addresses come from the block table. So the loop looks up a tile's block ids one step ahead.
"""

import torch
import triton
import triton.language as tl

from minipaged.triton_kernels.setup import is_interpreted

LOG2_E = 1.4426950408889634

# The running maximum begins here. With −inf, a tile without a visible token would compute
# 2^(−inf − −inf), which is NaN. With a finite number the same tile computes 2^−inf, which is 0.
LOWEST: tl.constexpr = tl.constexpr(-1e38)

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def dot_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype in which `attend` multiplies: the dtype of the cache, which suits tensor cores.

    The exception is bfloat16 under the interpreter. Its `tl.dot` would read the bits of bfloat16 numbers as
    integers, so it gets float32.
    """
    return tl.float32 if is_interpreted() and dtype == torch.bfloat16 else _DTYPES[dtype]


@triton.jit
def block_ids_at(block_table, positions, end, BLOCK_SIZE: tl.constexpr):
    """The block of each position before `end`, int32 [TILE]; block 0 for positions from `end` on."""
    return tl.load(block_table + positions // BLOCK_SIZE, mask=positions < end, other=0)


@triton.jit
def attend(
    queries,  # [M, PADDED_DIM]; zeros beyond HEAD_DIM
    query_positions,  # int32 [M]: each query sees the tokens up to this position
    keys,  # pointer to the keys of one head, in slot 0 of block 0
    values,  # pointer to the values of that head, in slot 0 of block 0
    block_table,  # pointer to the sequence's row
    begin,
    end,  # the tokens to look at: begin, ..., end - 1
    scale,
    block_stride,
    slot_stride,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,  # HEAD_DIM padded to a power of two, which Triton's tiles need
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # tokens that are read together: any number of blocks, or part of one block
    DOT_DTYPE: tl.constexpr,  # the dtype of the factors: see `dot_dtype`
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
    in_tile = tl.arange(0, TILE)  # [TILE]
    block_ids = block_ids_at(block_table, begin + in_tile, end, BLOCK_SIZE)  # int32 [TILE]
    for start in range(begin, end, TILE):
        positions = start + in_tile  # [TILE]
        inside = positions < end  # [TILE]
        # Widen to 64 bits before the multiplication: a product past 2³¹ would silently wrap to another block.
        slots = block_ids.to(tl.int64) * block_stride + (positions % BLOCK_SIZE) * slot_stride  # [TILE]
        offsets = slots[:, None] + dims[None, :]  # [TILE, PADDED_DIM]
        # Slots past the end are not loaded: they may hold NaN, and a weight of 0 times NaN is NaN.
        loaded = inside[:, None] & (dims < HEAD_DIM)[None, :]  # [TILE, PADDED_DIM]
        tile_keys = tl.load(keys + offsets, mask=loaded, other=0.0)  # [TILE, PADDED_DIM]
        tile_values = tl.load(values + offsets, mask=loaded, other=0.0)  # [TILE, PADDED_DIM]
        block_ids = block_ids_at(block_table, positions + TILE, end, BLOCK_SIZE)  # of the next tile

        # Without "ieee", float32 factors would be rounded to the 10-bit mantissa of TF32.
        keys_by_dim = tl.trans(tile_keys).to(DOT_DTYPE)  # [PADDED_DIM, TILE]
        scores = tl.dot(queries.to(DOT_DTYPE), keys_by_dim, input_precision="ieee") * scale  # [M, TILE]
        visible = inside[None, :] & (positions[None, :] <= query_positions[:, None])  # [M, TILE]
        scores = tl.where(visible, scores, float("-inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, 1))  # [M]
        weights = tl.exp2(scores - new_greatest[:, None])  # [M, TILE]
        shrink = tl.exp2(greatest - new_greatest)  # [M]
        total = total * shrink + tl.sum(weights, 1)
        weights = weights.to(tile_values.dtype).to(DOT_DTYPE)  # tensor cores need one dtype for both
        output = output * shrink[:, None]
        output = tl.dot(weights, tile_values.to(DOT_DTYPE), output, input_precision="ieee")
        greatest = new_greatest
    return greatest, total, output
