"""TritonAttention: paged attention on GPUs. One kernel for decodes, another for prompts and chunks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.triton_kernels.decode import paged_decode
from minipaged.triton_kernels.decode_split import paged_decode_split
from minipaged.triton_kernels.prefill import paged_prefill
from minipaged.triton_kernels.split_rule import num_splits


class TritonAttention:
    """The attention backend for GPUs; called like any other (see `AttentionFn`).

    Its only state is the number of multiprocessors. This module imports Triton: call `prepare_triton` first.

    Args:
        num_multiprocessors: multiprocessors of the GPU; see `split_rule`.
    """

    def __init__(self, num_multiprocessors: int) -> None:
        self._num_multiprocessors = num_multiprocessors

    @classmethod
    def on(cls, device: torch.device) -> TritonAttention:
        """The backend for a device. The interpreter counts as a GPU with one multiprocessor."""
        if device.type != "cuda":
            return cls(num_multiprocessors=1)
        return cls(torch.cuda.get_device_properties(device).multi_processor_count)

    def __call__(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        if query.stride(-1) != 1:
            query = query.contiguous()  # the kernels expect that a head's numbers lie side by side
        output = torch.empty_like(query)  # [T, num_heads, head_dim]
        num_decodes = metadata.num_decodes
        if num_decodes:
            self._decode(query[:num_decodes], kv_layer, metadata, output[:num_decodes], scale)
        starts = metadata.query_start_list[num_decodes:]
        query_lens = [end - start for start, end in pairwise(starts)]
        if any(query_lens):
            paged_prefill(
                query,
                kv_layer,
                metadata.block_tables,
                metadata.seq_lens,
                metadata.query_start_loc,
                output,
                scale,
                first_seq=num_decodes,
                max_query_len=max(query_lens),
            )
        return output

    def _decode(
        self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata, output: Tensor, scale: float
    ) -> None:
        num_decodes = query.shape[0]
        splits = num_splits(
            num_programs=num_decodes * kv_layer.shape[3],
            num_multiprocessors=self._num_multiprocessors,
            max_seq_len=max(metadata.seq_lens_list[:num_decodes]),
        )
        tables, seq_lens = metadata.block_tables, metadata.seq_lens
        if splits == 1:
            paged_decode(query, kv_layer, tables, seq_lens, output, scale)
        else:
            paged_decode_split(query, kv_layer, tables, seq_lens, output, scale, splits)
