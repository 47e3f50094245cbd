"""TritonAttention: paged attention on GPUs, by one kernel for decodes and one for prompts and chunks."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from minipaged.attention.metadata import AttentionMetadata
from minipaged.triton_kernels.decode import paged_decode
from minipaged.triton_kernels.decode_split import paged_decode_split, part_resources
from minipaged.triton_kernels.gpu import Gpu, programs_per_multiprocessor
from minipaged.triton_kernels.prefill import paged_prefill
from minipaged.triton_kernels.split_rule import num_splits


class TritonAttention:
    """The attention backend for GPUs. It is called like any other backend (see `AttentionFn`).

    Its only state is how many decode programs the GPU holds at once, for each shape of heads that the backend
    has seen. This module imports Triton: call `prepare_triton` first.

    Args:
        gpu: the limits of the GPU that holds the tensors.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._room: dict[tuple[torch.dtype, int, torch.Size], int] = {}

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
                self._gpu,
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
            room=self._programs_at_once(query, kv_layer, metadata),
            max_seq_len=max(metadata.seq_lens_list[:num_decodes]),
        )
        tables, seq_lens = metadata.block_tables, metadata.seq_lens
        if splits == 1:
            paged_decode(query, kv_layer, tables, seq_lens, output, scale, self._gpu)
        else:
            paged_decode_split(query, kv_layer, tables, seq_lens, output, scale, self._gpu, splits)

    def _programs_at_once(self, query: Tensor, kv_layer: Tensor, metadata: AttentionMetadata) -> int:
        """How many programs of a split decode the GPU holds at once. The interpreter holds one."""
        heads = (query.dtype, query.shape[1], kv_layer.shape[2:])
        if heads not in self._room:
            program = part_resources(query, kv_layer, metadata.block_tables, metadata.seq_lens, self._gpu)
            occupancy = 1 if program is None else programs_per_multiprocessor(program, self._gpu)
            self._room[heads] = self._gpu.num_multiprocessors * occupancy
        return self._room[heads]
