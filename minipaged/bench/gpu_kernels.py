"""What `minipaged bench gpu` measures of the attention kernels. Each function is one part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from minipaged.attention.metadata import AttentionFn
from minipaged.attention.reference import reference_attention
from minipaged.bench.attention_case import AttentionCase, Shape, Span, cache_numbers, make_case, num_blocks_of
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.timing import seconds_per_call
from minipaged.kv.cache import BlockCopy, KVCache, write_kv

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2}


@dataclass(frozen=True)
class KernelSizes:
    """How large the measured cases are.

    Attributes:
        copied_bytes: of the copy that says what the memory's bandwidth is.
        far_numbers: in the keys of a cache whose last blocks are read; past 2³¹, if there is room.
        batches, contexts, shapes: a decode is measured for each combination.
        prompts: a prefill is measured for each list of sequences.
        dtype: of queries and cache.
    """

    copied_bytes: int
    far_numbers: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    shapes: tuple[Shape, ...]
    prompts: tuple[tuple[Span, ...], ...]
    block_sizes: tuple[int, ...]
    head_dims: tuple[int, ...]
    dtype: torch.dtype


FULL = KernelSizes(
    copied_bytes=4 * 2**30,
    far_numbers=2**31 + 2**24,
    batches=(1, 8, 64, 256),
    contexts=(512, 4096, 32_768),
    shapes=(Shape(32, 8, 128), Shape(16, 8, 128), Shape(28, 4, 128)),
    prompts=((Span(8192, 8192),), (Span(2048, 2048),) * 4, (Span(2048, 16_384),)),
    block_sizes=(16, 32, 64, 128),
    head_dims=(64, 80, 96, 128, 256),
    dtype=torch.bfloat16,
)
REHEARSAL = KernelSizes(
    copied_bytes=2**20,
    far_numbers=2**16,
    batches=(1, 2),
    contexts=(16, 40),
    shapes=(Shape(2, 1, 64), Shape(3, 1, 64)),
    prompts=((Span(20, 20),), (Span(4, 30),) * 2),
    block_sizes=(16, 32),
    head_dims=(80,),
    dtype=torch.bfloat16,
)


class KernelBench:
    """The parts, over one attention backend and one device.

    Args:
        attention: the backend.
        device: where it runs.
        sizes: how large the cases are.
    """

    def __init__(self, attention: AttentionFn, device: torch.device, sizes: KernelSizes) -> None:
        self._attention = attention
        self._device = device
        self._sizes = sizes
        self._memory: Tensor | None = None
        self._copy_bandwidth: float | None = None

    def correctness(self) -> PartResult:
        """Every kernel against the readable version in float32, over a cache with NaN in it."""
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
            rows.append(_correctness("decode, prefill", what, error, tolerance))
            error = (_split_decodes(case).float() - expected[: case.metadata.num_decodes]).abs().max().item()
            rows.append(_correctness("decode_split", what, error, tolerance))
        rows += self._cache_kernels()
        num_wrong = sum(not row["right"] for row in rows)
        return PartResult(f"{len(rows) - num_wrong} of {len(rows)} right", rows, failed=num_wrong > 0)

    def far_blocks(self) -> PartResult:
        """The last blocks of a cache so large that their addresses do not fit into 32 bits."""
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
        row = _correctness("decode, prefill", f"{num_blocks * block} keys", error, TOLERANCE[dtype])
        return PartResult(f"error {error:.1e}", [row], failed=not row["right"])

    def copy_bandwidth(self) -> PartResult:
        """What the memory gives: a large copy, its bytes counted twice, read and written."""
        source = torch.zeros(self._sizes.copied_bytes, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        seconds = seconds_per_call(lambda: target.copy_(source), self._device)
        self._copy_bandwidth = 2 * source.numel() / seconds
        row: Row = {"bytes": source.numel(), "seconds": seconds, "GB/s": self._copy_bandwidth / 1e9}
        return PartResult(f"{self._copy_bandwidth / 1e9:,.0f} GB/s", [row])

    def decode(self) -> PartResult:
        """Keys and values read per second, as a share of the copy's bandwidth."""
        rows: list[Row] = []
        num_left_out = 0
        for shape in self._sizes.shapes:
            for batch in self._sizes.batches:
                for context in self._sizes.contexts:
                    if self._fits(cache_numbers([Span(1, context)] * batch, shape, 16)):
                        rows.append(self._decode_row(shape, batch, context, 16))
                    else:
                        num_left_out += 1
        large = [float(row["share of copy"]) for row in rows if row["batch"] == self._sizes.batches[-2]]
        headline = f"{min(large):.0%} to {max(large):.0%} of the copy at batch {self._sizes.batches[-2]}"
        if num_left_out:
            headline += f"; {num_left_out} cases are too large for this GPU"
        return PartResult(headline, rows)

    def paging(self) -> PartResult:
        """The same kernel over blocks in order and over shuffled ones: what paging costs."""
        shape, batch = self._sizes.shapes[0], self._sizes.batches[-2]
        rows: list[Row] = []
        for context in self._sizes.contexts:
            shuffled = self._decode_row(shape, batch, context, 16)
            in_order = self._decode_row(shape, batch, context, 16, shuffled=False)
            price = float(shuffled["seconds"]) / float(in_order["seconds"]) - 1
            rows.append({"batch": batch, "context": context, "price": price})
        return PartResult(
            f"at most {max(float(row['price']) for row in rows):.1%} slower when shuffled", rows
        )

    def block_sizes(self) -> PartResult:
        """Decode with blocks of several sizes."""
        shape, batch, context = self._sizes.shapes[0], self._sizes.batches[-2], self._sizes.contexts[1]
        rows = [self._decode_row(shape, batch, context, size) for size in self._sizes.block_sizes]
        shares = ", ".join(f"{row['block size']}: {float(row['share of copy']):.0%}" for row in rows)
        return PartResult(shares, rows)

    def prefill(self) -> PartResult:
        """TFLOP/s, next to PyTorch's own attention on keys and values that lie in order."""
        rows: list[Row] = []
        shape = self._sizes.shapes[0]
        for spans in self._sizes.prompts:
            case = self._case(spans, shape, 16)
            seconds = seconds_per_call(lambda case=case: self._call(case), self._device)
            sdpa = self._sdpa_seconds(spans, shape)
            row: Row = {"sequences": len(spans), "queries": spans[0].num_queries, "tokens": spans[0].seq_len}
            rates = {"TFLOP/s": case.flops / seconds / 1e12, "SDPA TFLOP/s": case.flops / sdpa / 1e12}
            rows.append(row | {"seconds": seconds} | rates)
        best = max(rows, key=lambda row: float(row["TFLOP/s"]))
        return PartResult(f"{best['TFLOP/s']:.3g} TFLOP/s, SDPA {best['SDPA TFLOP/s']:.3g}", rows)

    def _call(self, case: AttentionCase) -> Tensor:
        return self._attention(case.query, case.kv_layer, case.metadata, case.scale)

    def _case(
        self, spans: Sequence[Span], shape: Shape, block_size: int, *, shuffled: bool = True
    ) -> AttentionCase:
        needed = cache_numbers(spans, shape, block_size)
        if self._memory is None or self._memory.numel() < needed:
            self._memory = None  # let it go before more is taken
            self._memory = torch.empty(needed, dtype=self._sizes.dtype, device=self._device).normal_()
        return make_case(spans, shape, block_size, self._memory, shuffled=shuffled)

    def _fits(self, needed: int) -> bool:
        if self._device.type != "cuda" or (self._memory is not None and needed <= self._memory.numel()):
            return True
        held = 0 if self._memory is None else self._memory.nbytes
        return needed * self._sizes.dtype.itemsize < 0.9 * (torch.cuda.mem_get_info()[0] + held)

    def _decode_row(
        self, shape: Shape, batch: int, context: int, block_size: int, *, shuffled: bool = True
    ) -> Row:
        if self._copy_bandwidth is None:
            self.copy_bandwidth()
        assert self._copy_bandwidth is not None
        case = self._case([Span(1, context)] * batch, shape, block_size, shuffled=shuffled)
        seconds = seconds_per_call(lambda: self._call(case), self._device)
        row: Row = {"shape": str(shape), "batch": batch, "context": context, "block size": block_size}
        bandwidth = case.kv_bytes / seconds
        rates = {"GB/s": bandwidth / 1e9, "share of copy": bandwidth / self._copy_bandwidth}
        return row | {"seconds": seconds} | rates

    def _sdpa_seconds(self, spans: Sequence[Span], shape: Shape) -> float:
        span, device, dtype = spans[0], self._device, self._sizes.dtype
        query = torch.randn(len(spans), shape.num_heads, span.num_queries, shape.head_dim, device=device)
        keys = torch.randn(len(spans), shape.num_kv_heads, span.seq_len, shape.head_dim, device=device)
        query, keys = query.to(dtype), keys.to(dtype)
        mask = causal_lower_right(span.num_queries, span.seq_len)
        return seconds_per_call(
            lambda: F.scaled_dot_product_attention(query, keys, keys, attn_mask=mask, enable_gqa=True), device
        )

    def _cache_kernels(self) -> list[Row]:
        """`write_kv` and `copy_blocks` move numbers: the result is equal, or wrong."""
        from minipaged.attention import triton_cache

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
                    device=self._device,
                )
                for _ in range(2)
            )
            ours.data.copy_(torch.randn(ours.data.shape))
            theirs.data.copy_(ours.data)
            key, value = torch.randn(2, 4, 2, 80, device=self._device).to(dtype).unbind(0)
            slots = torch.tensor([17, 3, -1, 140], device=self._device)
            write_kv(theirs.layers[1], key[slots >= 0], value[slots >= 0], slots[slots >= 0])
            triton_cache.write_kv(ours.layers[1], key, value, slots)
            rows.append(_equality("write_kv", dtype, ours, theirs))
            copies = [BlockCopy(1, 5), BlockCopy(1, 6), BlockCopy(8, 2)]
            theirs.copy_blocks(copies)
            triton_cache.copy_blocks(ours.data, copies)
            rows.append(_equality("copy_blocks", dtype, ours, theirs))
        return rows


def _split_decodes(case: AttentionCase) -> Tensor:
    """The decodes of a case by `paged_decode_split`, with parts of several sizes, some of them empty."""
    from minipaged.attention.triton_decode_split import paged_decode_split

    query, metadata = case.query[: case.metadata.num_decodes], case.metadata
    output = torch.full_like(query, float("nan"))
    tables, seq_lens = metadata.block_tables, metadata.seq_lens
    paged_decode_split(query, case.kv_layer, tables, seq_lens, output, case.scale, num_splits=5)
    return output


def _reference(case: AttentionCase) -> Tensor:
    exact = case.in_float32()
    return reference_attention(exact.query, exact.kv_layer, exact.metadata, exact.scale)


def _correctness(kernel: str, what: str, error: float, tolerance: float) -> Row:
    return {"kernel": kernel, "case": what, "error": error, "right": error <= tolerance}  # NaN is not


def _equality(kernel: str, dtype: torch.dtype, ours: KVCache, theirs: KVCache) -> Row:
    equal = torch.equal(ours.data, theirs.data)
    return {"kernel": kernel, "case": str(dtype), "error": 0.0 if equal else float("inf"), "right": equal}
