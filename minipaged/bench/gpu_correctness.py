"""Check that every kernel on this GPU gives the same result as the reference version in float32."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.bench.attention_case import AttentionCase, Shape, Span, cache_numbers, make_case, num_blocks_of
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.gpu_sizes import KernelSizes
from minipaged.kv.cache import BlockCopy, KVCache, write_kv

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2}


class Correctness:
    """The parts about correctness, for one attention backend on one device.

    Args:
        attention: the backend.
        device: the backend's device.
        sizes: sizes of the cases.
    """

    def __init__(self, attention: AttentionFn, device: torch.device, sizes: KernelSizes) -> None:
        self._attention = attention
        self._device = device
        self._sizes = sizes

    def kernels(self) -> PartResult:
        """Check every kernel on a cache whose unused slots hold NaN."""
        rows: list[Row] = []
        cases = [(dtype, Shape(4, 1, dim)) for dtype in TOLERANCE for dim in self._sizes.head_dims]
        cases.append((torch.bfloat16, Shape(7, 1, 128)))
        for dtype, shape in cases:
            spans = [Span(1, 1), Span(1, 130), Span(1, 17), Span(1, 64), Span(33, 33), Span(5, 70)]
            memory = torch.randn(cache_numbers(spans, shape, 16), device=self._device).to(dtype)
            case = make_case(spans, shape, 16, memory, poisoned=True)
            expected = _reference(case)
            what, tolerance = f"{dtype} {shape}", TOLERANCE[dtype]
            error = (self._call(case).float() - expected).abs().max().item()
            rows.append(_row("decode, prefill", what, error, tolerance))
            error = (_split_decodes(case).float() - expected[: case.metadata.num_decodes]).abs().max().item()
            rows.append(_row("decode_split", what, error, tolerance))
        rows += cache_kernels(self._device)
        num_wrong = sum(not row["right"] for row in rows)
        return PartResult(f"{len(rows) - num_wrong} of {len(rows)} right", rows, failed=num_wrong > 0)

    def far_blocks(self) -> PartResult:
        """Check kernels on the last blocks of a very large cache, whose addresses do not fit into 32 bits."""
        shape, spans, dtype = self._sizes.shapes[0], [Span(1, 100), Span(20, 40)], self._sizes.dtype
        block = 16 * shape.num_kv_heads * shape.head_dim
        num_blocks = self._sizes.far_numbers // block
        kv_shape = (2, num_blocks, 16, shape.num_kv_heads, shape.head_dim)
        kv_layer = torch.full(kv_shape, float("nan"), dtype=dtype, device=self._device)
        case = make_case(spans, shape, 16, kv_layer.flatten())
        first = num_blocks - num_blocks_of(spans, 16)
        kv_layer[:, first:].normal_()
        tables = case.metadata.block_tables + first
        case = replace(case, kv_layer=kv_layer, metadata=replace(case.metadata, block_tables=tables))
        near = replace(case, kv_layer=kv_layer[:, first:].clone())
        near = replace(near, metadata=replace(case.metadata, block_tables=tables - first))
        error = (self._call(case).float() - _reference(near)).abs().max().item()
        row = _row("decode, prefill", f"{num_blocks * block} keys", error, TOLERANCE[dtype])
        return PartResult(f"error {error:.1e}", [row], failed=not row["right"])

    def _call(self, case: AttentionCase) -> Tensor:
        return self._attention(case.query, case.kv_layer, case.metadata, case.scale)


def cache_kernels(device: torch.device) -> list[Row]:
    """`write_kv` and `copy_blocks` only move numbers, so their results must be exactly equal."""
    from minipaged.triton_kernels import cache as triton_cache

    rows: list[Row] = []
    for dtype in TOLERANCE:
        ours, theirs = (
            KVCache(
                num_layers=2,
                num_blocks=9,
                block_size=16,
                num_kv_heads=2,
                head_dim=80,
                dtype=dtype,
                device=device,
            )
            for _ in range(2)
        )
        ours.data.copy_(torch.randn(ours.data.shape))
        theirs.data.copy_(ours.data)
        key, value = torch.randn(2, 4, 2, 80, device=device).to(dtype).unbind(0)
        slots = torch.tensor([17, 3, -1, 140], device=device)
        write_kv(theirs.layers[1], key[slots >= 0], value[slots >= 0], slots[slots >= 0])
        triton_cache.write_kv(ours.layers[1], key, value, slots)
        rows.append(_equality("write_kv", dtype, ours, theirs))
        copies = [BlockCopy(1, 5), BlockCopy(1, 6), BlockCopy(8, 2)]
        theirs.copy_blocks(copies)
        triton_cache.copy_blocks(ours.data, copies)
        rows.append(_equality("copy_blocks", dtype, ours, theirs))
    return rows


def _split_decodes(case: AttentionCase) -> Tensor:
    """Compute a case's decodes with `paged_decode_split`. Some parts of the sequences are empty."""
    from minipaged.triton_kernels.decode_split import paged_decode_split
    from minipaged.triton_kernels.gpu import Gpu

    query, metadata = case.query[: case.metadata.num_decodes], case.metadata
    output = torch.full_like(query, float("nan"))
    tables, seq_lens = metadata.block_tables, metadata.seq_lens
    gpu = Gpu.of(query.device)
    paged_decode_split(query, case.kv_layer, tables, seq_lens, output, case.scale, gpu, num_splits=5)
    return output


def _reference(case: AttentionCase) -> Tensor:
    exact = case.in_float32()
    return reference_attention(exact.query, exact.kv_layer, exact.metadata, exact.scale)


def _row(kernel: str, what: str, error: float, tolerance: float) -> Row:
    return {"kernel": kernel, "case": what, "error": error, "right": error <= tolerance}  # False for NaN


def _equality(kernel: str, dtype: torch.dtype, ours: KVCache, theirs: KVCache) -> Row:
    equal = torch.equal(ours.data, theirs.data)
    return {"kernel": kernel, "case": str(dtype), "error": 0.0 if equal else float("inf"), "right": equal}
