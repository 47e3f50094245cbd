"""paged_decode: attention of a decode step, one query token for each sequence.

There is one program for each KV head of each sequence. All query heads that share the KV head (GQA) are
rows of one tile, so each key and value is read from memory once. These reads take nearly all of the
kernel's time. Its lower bound is the bytes of keys and values over the memory's bandwidth.
"""

# pyright: reportCallIssue=false
# (A launch takes options that are not parameters of the kernel.)

import torch
import triton
import triton.language as tl

from minipaged.triton_kernels.gpu import Gpu
from minipaged.triton_kernels.softmax import LOG2_E, attend, dot_dtype
from minipaged.triton_kernels.tiles import decode_tiles


@triton.jit(do_not_specialize=["table_stride"])
def decode_kernel(
    query,  # [D, num_heads, head_dim]
    output,  # as query
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # int32 [S, M]
    seq_lens,  # int32 [S]
    scale,
    query_stride,
    query_head_stride,
    output_stride,
    output_head_stride,
    values_stride,  # from the keys to the values
    block_stride,
    slot_stride,
    kv_head_stride,
    table_stride,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,  # GROUP, padded to what tl.dot needs
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    kv_head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    seq_len = tl.load(seq_lens + seq)

    rows = tl.arange(0, ROWS)  # [ROWS]
    dims = tl.arange(0, PADDED_DIM)  # [PADDED_DIM]
    heads = kv_head * GROUP + rows  # [ROWS]
    used = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]  # [ROWS, PADDED_DIM]
    query_at = seq * query_stride + heads[:, None] * query_head_stride + dims[None, :]
    queries = tl.load(query + query_at, mask=used, other=0.0)  # [ROWS, PADDED_DIM]

    keys = kv_layer + kv_head * kv_head_stride
    _, total, result = attend(
        queries,
        tl.full([ROWS], 0, tl.int32) + seq_len - 1,  # the query is the last token and sees every token
        keys,
        keys + values_stride,
        block_tables + seq * table_stride,
        0,
        seq_len,
        scale,
        block_stride,
        slot_stride,
        HEAD_DIM,
        PADDED_DIM,
        BLOCK_SIZE,
        TILE,
        DOT_DTYPE,
    )
    # A sequence of length 0 is padding: its weights sum to 0, and its output is 0.
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    output_at = seq * output_stride + heads[:, None] * output_head_stride + dims[None, :]
    tl.store(output + output_at, result.to(output.dtype.element_ty), mask=used)


def paged_decode(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    output: torch.Tensor,
    scale: float,
    gpu: Gpu,
) -> None:
    """For each of D sequences, attend from its last token to all of its tokens.

    Args:
        query: `[D, num_heads, head_dim]`; the last dimension is contiguous, as in all tensors here.
        kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`, in the dtype of `query`.
        block_tables: int32 `[S, M]` with S >= D; the first D rows are read.
        seq_lens: int32 `[S]`; a length of 0 gives a row of zeros.
        output: a tensor like `query`. It is overwritten.
        scale: multiplies the scores.
        gpu: the limits of the GPU that holds the tensors.
    """
    num_decodes, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    tiles = decode_tiles(num_heads // num_kv_heads, head_dim, query.dtype, gpu)
    decode_kernel[(num_kv_heads, num_decodes)](
        query,
        output,
        kv_layer,
        block_tables,
        seq_lens,
        scale * LOG2_E,
        *query.stride()[:2],
        *output.stride()[:2],
        *kv_layer.stride()[:4],
        block_tables.stride(0),
        GROUP=num_heads // num_kv_heads,
        ROWS=tiles.rows,
        HEAD_DIM=head_dim,
        PADDED_DIM=tiles.padded_dim,
        BLOCK_SIZE=block_size,
        TILE=tiles.tokens,
        DOT_DTYPE=dot_dtype(query.dtype),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        enable_fp_fusion=True,
    )
