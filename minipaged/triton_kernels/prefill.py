"""paged_prefill: attention for sequences that compute several tokens in this step.

The queries of a sequence are its last tokens: a whole prompt, or a chunk of a prompt whose earlier
tokens are already in the cache. One program computes a few neighbouring queries for one KV head. Its
tile has one row for each pair of a query and a query head of that KV head (GQA). All rows use the same
keys and values, so the program reads these once.
"""

# pyright: reportCallIssue=false
# (A launch takes options that are not parameters of the kernel.)

import torch
import triton
import triton.language as tl

from minipaged.triton_kernels.gpu import Gpu
from minipaged.triton_kernels.softmax import LOG2_E, attend, dot_dtype
from minipaged.triton_kernels.tiles import prefill_tiles


@triton.jit(do_not_specialize=["table_stride", "first_seq"])
def prefill_kernel(
    query,  # [T, num_heads, head_dim]
    output,  # as query
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # int32 [S, M]
    seq_lens,  # int32 [S]
    query_start_loc,  # int32 [S + 1]
    scale,
    first_seq,  # the sequences before it are decodes
    query_stride,
    query_head_stride,
    output_stride,
    output_head_stride,
    values_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    table_stride,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    QUERIES: tl.constexpr = ROWS // GROUP  # the queries of one program
    first_query = tl.program_id(0) * QUERIES
    kv_head = tl.program_id(1)
    seq = first_seq + tl.program_id(2).to(tl.int64)
    start = tl.load(query_start_loc + seq)
    num_queries = tl.load(query_start_loc + seq + 1) - start
    # The grid has enough programs for the longest sequence of the step. Shorter ones need fewer.
    if first_query >= num_queries:
        return
    num_cached = tl.load(seq_lens + seq) - num_queries

    rows = tl.arange(0, ROWS)  # [ROWS]
    dims = tl.arange(0, PADDED_DIM)  # [PADDED_DIM]
    queries_of_rows = first_query + rows // GROUP  # [ROWS]
    heads = kv_head * GROUP + rows % GROUP  # [ROWS]
    used_rows = (rows < QUERIES * GROUP) & (queries_of_rows < num_queries)  # [ROWS]
    used = used_rows[:, None] & (dims < HEAD_DIM)[None, :]  # [ROWS, PADDED_DIM]
    tokens = (start + queries_of_rows).to(tl.int64)  # [ROWS]: rows of the step's tensors
    query_at = (tokens * query_stride + heads * query_head_stride)[:, None] + dims[None, :]
    queries = tl.load(query + query_at, mask=used, other=0.0)  # [ROWS, PADDED_DIM]

    keys = kv_layer + kv_head * kv_head_stride
    _, total, result = attend(
        queries,
        num_cached + queries_of_rows,
        keys,
        keys + values_stride,
        block_tables + seq * table_stride,
        0,
        num_cached + tl.minimum(first_query + QUERIES, num_queries),  # no query here sees further
        scale,
        block_stride,
        slot_stride,
        HEAD_DIM,
        PADDED_DIM,
        BLOCK_SIZE,
        TILE,
        DOT_DTYPE,
    )
    result = result / total[:, None]  # every query sees itself, so no total is 0
    output_at = (tokens * output_stride + heads * output_head_stride)[:, None] + dims[None, :]
    tl.store(output + output_at, result.to(output.dtype.element_ty), mask=used)


def paged_prefill(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    output: torch.Tensor,
    scale: float,
    gpu: Gpu,
    *,
    first_seq: int,
    max_query_len: int,
) -> None:
    """Attend from each query token to itself and to all tokens before it in its sequence.

    Args:
        query: `[T, num_heads, head_dim]`; the last dimension is contiguous, as in all tensors here.
        kv_layer: `[2, num_blocks, block_size, num_kv_heads, head_dim]`, in the dtype of `query`.
        block_tables: int32 `[S, M]`.
        seq_lens: int32 `[S]`.
        query_start_loc: int32 `[S + 1]`: the rows of sequence s begin at row `query_start_loc[s]`.
        output: a tensor like `query`. The rows of sequences from `first_seq` on are overwritten.
        scale: multiplies the scores.
        gpu: the limits of the GPU that holds the tensors.
        first_seq: the first sequence to compute.
        max_query_len: the largest number of queries of one of these sequences.
    """
    _, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    group = num_heads // num_kv_heads
    tiles = prefill_tiles(group, head_dim, query.dtype, gpu)
    queries_per_program = tiles.rows // group
    grid = (-(-max_query_len // queries_per_program), num_kv_heads, seq_lens.shape[0] - first_seq)
    prefill_kernel[grid](
        query,
        output,
        kv_layer,
        block_tables,
        seq_lens,
        query_start_loc,
        scale * LOG2_E,
        first_seq,
        *query.stride()[:2],
        *output.stride()[:2],
        *kv_layer.stride()[:4],
        block_tables.stride(0),
        GROUP=group,
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
