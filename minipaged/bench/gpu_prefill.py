"""Measure the speed of a prefill, in comparison with PyTorch's own attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from minipaged.attention.metadata import AttentionFn
from minipaged.bench.attention_case import Shape, Span
from minipaged.bench.case_memory import CaseMemory
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.gpu_sizes import KernelSizes
from minipaged.bench.timing import seconds_per_call


class Prefill:
    """The part about prefill, for one attention backend on one device. Arguments as for `Bandwidth`."""

    def __init__(self, attention: AttentionFn, device: torch.device, sizes: KernelSizes) -> None:
        self._attention = attention
        self._device = device
        self._sizes = sizes
        self._memory = CaseMemory(device, sizes.dtype)

    def measure(self) -> PartResult:
        """Measure TFLOP/s of the paged prefill, and of PyTorch's attention on contiguous keys and values."""
        rows: list[Row] = []
        shape = self._sizes.shapes[0]
        for spans in self._sizes.prompts:
            case = self._memory.case(spans, shape, 16)
            seconds = seconds_per_call(
                lambda case=case: self._attention(case.query, case.kv_layer, case.metadata, case.scale),
                self._device,
            )
            sdpa = self._sdpa_seconds(spans, shape)
            row: Row = {"sequences": len(spans), "queries": spans[0].num_queries, "tokens": spans[0].seq_len}
            rates = {"TFLOP/s": case.flops / seconds / 1e12, "SDPA TFLOP/s": case.flops / sdpa / 1e12}
            rows.append(row | {"seconds": seconds} | rates)
        best = max(rows, key=lambda row: float(row["TFLOP/s"]))
        return PartResult(f"{best['TFLOP/s']:.3g} TFLOP/s, SDPA {best['SDPA TFLOP/s']:.3g}", rows)

    def _sdpa_seconds(self, spans: Sequence[Span], shape: Shape) -> float:
        span, device, dtype = spans[0], self._device, self._sizes.dtype
        query = torch.randn(len(spans), shape.num_heads, span.num_queries, shape.head_dim, device=device)
        keys = torch.randn(len(spans), shape.num_kv_heads, span.seq_len, shape.head_dim, device=device)
        query, keys = query.to(dtype), keys.to(dtype)
        mask = causal_lower_right(span.num_queries, span.seq_len)
        return seconds_per_call(
            lambda: F.scaled_dot_product_attention(query, keys, keys, attn_mask=mask, enable_gqa=True), device
        )
