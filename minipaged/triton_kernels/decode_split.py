"""paged_decode_split: a decode step in which several programs share one sequence.

`paged_decode` has one program for each KV head of each sequence. A few long sequences then leave
most of a GPU idle. Here the tokens of a sequence are cut into parts, with one program for each part. A
second kernel merges the partial results by log-sum-exp. The method is Flash-Decoding; vLLM's
triton_unified_attention.py calls the parts `segments`.
"""

# pyright: reportCallIssue=false
# (A launch takes options that are not parameters of the kernel.)

from functools import partial

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from minipaged.triton_kernels.gpu import Gpu, Resources
from minipaged.triton_kernels.softmax import LOG2_E, attend, dot_dtype
from minipaged.triton_kernels.tiles import decode_tiles


@triton.jit(do_not_specialize=["table_stride", "num_splits"])
def decode_part_kernel(
    query,  # [D, num_heads, head_dim]
    part_outputs,  # float32 [D, num_heads, num_splits, head_dim], contiguous
    part_sums,  # float32 [D, num_heads, num_splits], contiguous
    kv_layer,  # [2, num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # int32 [S, M]
    seq_lens,  # int32 [S]
    scale,
    num_splits,
    query_stride,
    query_head_stride,
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
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    seq_len = tl.load(seq_lens + seq)
    # Equal parts, each of whole tiles. The last parts may be empty: their weights sum to 0.
    part = ((seq_len + num_splits - 1) // num_splits + TILE - 1) // TILE * TILE
    begin = tl.minimum(split * part, seq_len)
    end = tl.minimum(begin + part, seq_len)

    rows = tl.arange(0, ROWS)  # [ROWS]
    dims = tl.arange(0, PADDED_DIM)  # [PADDED_DIM]
    heads = kv_head * GROUP + rows  # [ROWS]
    used = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]  # [ROWS, PADDED_DIM]
    query_at = seq * query_stride + heads[:, None] * query_head_stride + dims[None, :]
    queries = tl.load(query + query_at, mask=used, other=0.0)  # [ROWS, PADDED_DIM]

    keys = kv_layer + kv_head * kv_head_stride
    greatest, total, output = attend(
        queries,
        tl.full([ROWS], 0, tl.int32) + seq_len - 1,
        keys,
        keys + values_stride,
        block_tables + seq * table_stride,
        begin,
        end,
        scale,
        block_stride,
        slot_stride,
        HEAD_DIM,
        PADDED_DIM,
        BLOCK_SIZE,
        TILE,
        DOT_DTYPE,
    )
    # Each part is normalised by itself. An empty part stores zeros, with LOWEST as the log of its sum. So it
    # has no weight when it is merged with other parts. With −inf, a sequence without tokens would merge to
    # NaN, not zeros.
    total = tl.where(total == 0.0, 1.0, total)
    output = output / total[:, None]
    part_at = (seq * (tl.num_programs(0) * GROUP) + heads) * num_splits + split  # int64 [ROWS]
    tl.store(part_outputs + part_at[:, None] * HEAD_DIM + dims[None, :], output, mask=used)
    tl.store(part_sums + part_at, greatest + tl.log2(total), mask=rows < GROUP)


@triton.jit(do_not_specialize=["num_splits"])
def merge_kernel(
    part_outputs,  # float32 [D, num_heads, num_splits, head_dim]
    part_sums,  # float32 [D, num_heads, num_splits]: log2 of the sum of 2^score
    output,  # [D, num_heads, head_dim]
    num_splits,
    output_stride,
    output_head_stride,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
):
    head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    splits = tl.arange(0, PADDED_SPLITS)  # [PADDED_SPLITS]
    dims = tl.arange(0, PADDED_DIM)  # [PADDED_DIM]
    first = (seq * tl.num_programs(0) + head) * num_splits  # int64
    sums = tl.load(part_sums + first + splits, mask=splits < num_splits, other=float("-inf"))
    weights = tl.exp2(sums - tl.max(sums, 0))  # [PADDED_SPLITS]
    weights = weights / tl.sum(weights, 0)
    part_at = (first + splits)[:, None] * HEAD_DIM + dims[None, :]  # [PADDED_SPLITS, PADDED_DIM]
    used = (splits < num_splits)[:, None] & (dims < HEAD_DIM)[None, :]  # [PADDED_SPLITS, PADDED_DIM]
    parts = tl.load(part_outputs + part_at, mask=used, other=0.0)  # [PADDED_SPLITS, PADDED_DIM]
    merged = tl.sum(parts * weights[:, None], 0)  # [PADDED_DIM]
    output_at = seq * output_stride + head * output_head_stride + dims
    tl.store(output + output_at, merged.to(output.dtype.element_ty), mask=dims < HEAD_DIM)


def paged_decode_split(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    output: torch.Tensor,
    scale: float,
    gpu: Gpu,
    num_splits: int,
) -> None:
    """Like `paged_decode`, but with `num_splits` programs for each KV head of each sequence."""
    num_decodes, num_heads, head_dim = query.shape
    # [D, num_heads, num_splits, head_dim] and [D, num_heads, num_splits]
    part_outputs = query.new_empty(num_decodes, num_heads, num_splits, head_dim, dtype=torch.float32)
    part_sums = query.new_empty(num_decodes, num_heads, num_splits, dtype=torch.float32)
    _parts(query, part_outputs, part_sums, kv_layer, block_tables, seq_lens, scale, gpu, num_splits)
    merge_kernel[(num_heads, num_decodes)](
        part_outputs,
        part_sums,
        output,
        num_splits,
        *output.stride()[:2],
        HEAD_DIM=head_dim,
        PADDED_DIM=triton.next_power_of_2(head_dim),
        PADDED_SPLITS=triton.next_power_of_2(num_splits),
        enable_fp_fusion=True,
    )


def part_resources(
    query: torch.Tensor, kv_layer: torch.Tensor, block_tables: torch.Tensor, seq_lens: torch.Tensor, gpu: Gpu
) -> Resources | None:
    """What a program of `decode_part_kernel` needs for such tensors. The result is `None` when interpreted.

    The kernel is compiled and loaded onto the GPU, but not launched.
    """
    parts = query.new_empty(0, dtype=torch.float32)
    compiled = _parts(query, parts, parts, kv_layer, block_tables, seq_lens, 1.0, gpu, 1, launch=False)
    if not isinstance(compiled, CompiledKernel):
        return None
    compiled._init_handles()  # loads it; only then are its registers known
    return Resources(
        num_threads=compiled.metadata.num_warps * compiled.metadata.warp_size,
        registers=compiled.n_regs,
        shared_bytes=compiled.metadata.shared,
    )


def _parts(
    query: torch.Tensor,
    part_outputs: torch.Tensor,
    part_sums: torch.Tensor,
    kv_layer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    gpu: Gpu,
    num_splits: int,
    *,
    launch: bool = True,
) -> object:
    """Launch `decode_part_kernel`, or only compile it. Returns the compiled kernel, if there is one."""
    num_decodes, num_heads, head_dim = query.shape
    block_size, num_kv_heads = kv_layer.shape[2:4]
    tiles = decode_tiles(num_heads // num_kv_heads, head_dim, query.dtype, gpu)
    grid = (num_kv_heads, num_splits, num_decodes)
    run = decode_part_kernel[grid] if launch else partial(decode_part_kernel.warmup, grid=grid)
    return run(
        query,
        part_outputs,
        part_sums,
        kv_layer,
        block_tables,
        seq_lens,
        scale * LOG2_E,
        num_splits,
        *query.stride()[:2],
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
