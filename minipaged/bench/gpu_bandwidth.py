"""Measure the share of the memory's bandwidth that a decode uses, and how much paging slows a decode down."""

from __future__ import annotations

import torch

from minipaged.attention.metadata import AttentionFn
from minipaged.bench.attention_case import Shape, Span
from minipaged.bench.case_memory import CaseMemory
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.gpu_sizes import KernelSizes
from minipaged.bench.timing import seconds_per_call

BLOCK_SIZE = 16


class Bandwidth:
    """The parts about bandwidth, for one attention backend on one device.

    Args:
        attention: the backend.
        device: the backend's device.
        sizes: sizes of the cases.
    """

    def __init__(self, attention: AttentionFn, device: torch.device, sizes: KernelSizes) -> None:
        self._attention = attention
        self._device = device
        self._sizes = sizes
        self._memory = CaseMemory(device, sizes.dtype)
        self._of_copy: float | None = None  # bytes per second

    def copy(self) -> PartResult:
        """Measure the memory's bandwidth by a large copy. Each byte counts twice: read and written."""
        rate = self._copy_rate()
        row: Row = {"bytes copied": self._sizes.copied_bytes, "GB/s": rate / 1e9}
        return PartResult(f"{rate / 1e9:,.0f} GB/s", [row])

    def decode(self) -> PartResult:
        """Measure how many bytes of keys and values a decode reads per second, as a share of the copy's rate.

        The result has a row for each shape, batch and context.
        """
        rows: list[Row] = []
        left_out: list[Row] = []
        for shape in self._sizes.shapes:
            for batch in self._sizes.batches:
                for context in self._sizes.contexts:
                    if self._memory.fits([Span(1, context)] * batch, shape, BLOCK_SIZE):
                        rows.append(self._decode_row(shape, batch, context, BLOCK_SIZE))
                    else:
                        case: Row = {"shape": str(shape), "batch": batch, "context": context}
                        left_out.append(case | {"left out": "too large for this GPU"})
        large = [
            float(row["share of copy"])
            for row in rows
            if int(row["batch"]) >= self._sizes.paged_batch
            and int(row["context"]) >= self._sizes.paged_context
        ]
        where = f"batch {self._sizes.paged_batch} and context {self._sizes.paged_context} up"
        headline = f"{min(large):.0%} to {max(large):.0%} of the copy from {where}" if large else "none fits"
        if left_out:
            headline += f"; {len(left_out)} cases are too large for this GPU"
        return PartResult(headline, rows + left_out)

    def paging(self) -> PartResult:
        """Measure the cost of paging: run the same kernel over shuffled blocks and over blocks in order."""
        shape, batch = self._sizes.shapes[0], self._sizes.paged_batch
        rows: list[Row] = []
        for context in self._sizes.contexts:
            if not self._memory.fits([Span(1, context)] * batch, shape, BLOCK_SIZE):
                continue
            shuffled = self._decode_row(shape, batch, context, BLOCK_SIZE)
            in_order = self._decode_row(shape, batch, context, BLOCK_SIZE, shuffled=False)
            price = float(shuffled["seconds"]) / float(in_order["seconds"]) - 1
            row: Row = {"batch": batch, "context": context, "price": price}
            times = {"shuffled seconds": shuffled["seconds"], "ordered seconds": in_order["seconds"]}
            rows.append(row | times)
        dearest = max(float(row["price"]) for row in rows)
        return PartResult(f"at most {dearest:.1%} slower when shuffled", rows)

    def block_sizes(self) -> PartResult:
        """Measure the same decode with several block sizes."""
        shape, batch, context = self._sizes.shapes[0], self._sizes.paged_batch, self._sizes.paged_context
        rows = [self._decode_row(shape, batch, context, size) for size in self._sizes.block_sizes]
        shares = ", ".join(f"{row['block size']}: {float(row['share of copy']):.0%}" for row in rows)
        return PartResult(shares, rows)

    def _decode_row(
        self, shape: Shape, batch: int, context: int, block_size: int, *, shuffled: bool = True
    ) -> Row:
        case = self._memory.case([Span(1, context)] * batch, shape, block_size, shuffled=shuffled)
        seconds = seconds_per_call(
            lambda: self._attention(case.query, case.kv_layer, case.metadata, case.scale), self._device
        )
        row: Row = {"shape": str(shape), "batch": batch, "context": context, "block size": block_size}
        rate = case.kv_bytes / seconds
        return row | {"seconds": seconds, "GB/s": rate / 1e9, "share of copy": rate / self._copy_rate()}

    def _copy_rate(self) -> float:
        """Bytes per second of a large copy. The first part that needs the rate measures it."""
        if self._of_copy is None:
            source = torch.zeros(self._sizes.copied_bytes, dtype=torch.uint8, device=self._device)
            target = torch.empty_like(source)
            seconds = seconds_per_call(lambda: target.copy_(source), self._device)
            self._of_copy = 2 * self._sizes.copied_bytes / seconds
        return self._of_copy
