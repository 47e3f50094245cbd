"""CpuDecode: decode steps on a CPU, whose calls of compiled code are all known before the step begins.

On a CPU, too, a step of few tokens is many short calls: four in each layer. While Python gets the next one
ready the memory bus stands still, which for one sequence is what bounds a step. So the calls of a step of n
sequences are written down once, and made in one go from then on.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.cpu import call_attention, check_attended
from minipaged.attention.cpu_cache import call_write_kv, check_written
from minipaged.attention.paged import PagedLayout
from minipaged.attention.query_groups import MOST_DECODES, QueryGroups, group_decodes
from minipaged.cpu.calls import Call, CallSequence
from minipaged.cpu.panel import PANEL
from minipaged.graphs.inputs import DecodeInputs, arrays_of
from minipaged.kv.size import blocks_needed
from minipaged.model.cpu_layer import TOKENS_AT_ONCE, CpuLayer, LayerRoom
from minipaged.model.decoder import Decoder
from minipaged.step_batch import StepBatch
from minipaged.to_device import IntArray

MOST_ROWS = TOKENS_AT_ONCE
"""Sequences in one step: what a layer computes in one call."""


def can_write_down(decoder: Decoder, layout: PagedLayout) -> bool:
    """Whether a decoder's steps are calls of compiled code alone."""
    layers = decoder.faster_layers
    in_rows = all(layer.is_contiguous() for layer in layout.cache.layers)
    fits = decoder.config.head_dim % PANEL == 0 and decoder.dtype == layout.cache.layers[0].dtype
    return fits and in_rows and len(layers) > 0 and all(isinstance(each, CpuLayer) for each in layers)


class CpuDecode:
    """`DecodeSteps` for the CPU. A step's calls are written down when there is the first of its size.

    Args:
        decoder: the model, for which `can_write_down` holds.
        layout: where its keys and values are.
        max_num_seqs: most sequences in one step.
        max_model_len: tokens of the longest sequence.
    """

    def __init__(
        self, decoder: Decoder, layout: PagedLayout, *, max_num_seqs: int, max_model_len: int
    ) -> None:
        self._decoder = decoder
        self._layout = layout
        self._most_rows = min(max_num_seqs, MOST_ROWS)
        config, rows = decoder.config, self._most_rows
        max_blocks = blocks_needed(max_model_len, layout.block_size)
        self._inputs = DecodeInputs.of_padding(rows, max_blocks, decoder.device)
        num_heads = config.num_heads, config.num_kv_heads, config.num_kv_heads
        self._num_heads = num_heads
        empty = decoder.embed_tokens.new_empty
        self._hidden = empty(rows, config.hidden_size)  # [B, hidden]
        self._cos = empty(rows, 1, config.head_dim // 2)  # [B, 1, D / 2]
        self._sin = torch.empty_like(self._cos)  # [B, 1, D / 2]
        self._heads = empty(rows, sum(num_heads), config.head_dim)  # [B, Hq + 2 * Hkv, D]
        self._attended = empty(rows, config.num_heads, config.head_dim)  # [B, Hq, D]
        self._room = LayerRoom(config)
        self._sequences = torch.arange(rows, dtype=torch.int32)  # [B]
        self._members = np.zeros(rows, dtype=np.int32)
        self._starts = np.zeros(rows + 1, dtype=np.int32)
        self._shared = np.zeros(rows, dtype=np.int32)
        self._written_down: dict[tuple[int, int], CallSequence] = {}

    def bucket_of(self, batch: StepBatch) -> int | None:
        """Its number of sequences; `None` if a step has others than decodes, or too many."""
        num_rows = len(batch.items)
        return num_rows if len(batch.token_ids) == num_rows <= self._most_rows else None

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step; see `DecodeSteps`."""
        arrays = arrays_of(batch, self._layout.locate(batch))
        inputs = self._inputs.first(bucket)
        inputs.fill([torch.from_numpy(each) for each in arrays])
        self._group(arrays[-1])
        entering = self._decoder.enter(inputs.token_ids, inputs.positions)
        for kept, given in zip((self._hidden, self._cos, self._sin), entering, strict=True):
            kept[:bucket].copy_(given)
        # PyTorch's number of threads may have been changed since.
        key = bucket, torch.get_num_threads()
        if key not in self._written_down:
            self._written_down[key] = CallSequence(self._calls(bucket))
        calls = self._written_down[key]
        calls.run()
        # All layers have the same slots and tables.
        _, write, attend, *_ = calls.arguments
        check_written(write, inputs.slot_mapping)
        check_attended(attend)
        return self._decoder.norm(self._hidden[:bucket]), torch.from_numpy(rows)

    def _group(self, block_tables: IntArray) -> None:
        """Which sequences read the same blocks; behind their groups come empty ones."""
        members, starts, shared = group_decodes(block_tables)
        self._members[: len(members)] = members
        self._starts[: len(starts)] = starts
        self._starts[len(starts) :] = len(members)
        self._shared[: len(shared)] = shared

    def _calls(self, num_rows: int) -> list[Call]:
        """All layers over the first rows of what this keeps."""
        inputs = self._inputs.first(num_rows)
        hidden, cos, sin, heads, attended = (
            kept[:num_rows] for kept in (self._hidden, self._cos, self._sin, self._heads, self._attended)
        )
        q, k, v = heads.split(self._num_heads, dim=1)
        groups = QueryGroups(
            sequences=self._sequences,
            lengths=inputs.seq_lens,
            members=torch.from_numpy(self._members),
            starts=torch.from_numpy(self._starts),
            shared=torch.from_numpy(self._shared)[:num_rows],
            num_pairs=0,
        )
        calls: list[Call] = []
        for layer, kv_layer in zip(self._decoder.faster_layers, self._layout.cache.layers, strict=True):
            assert isinstance(layer, CpuLayer)
            num_threads = layer.num_threads_of_one
            calls += (
                layer.call_before(hidden, cos, sin, heads, self._room, num_threads=num_threads),
                call_write_kv(kv_layer, k, v, inputs.slot_mapping, num_threads=num_threads),
                call_attention(
                    q,
                    kv_layer,
                    inputs.block_tables,
                    groups,
                    self._layout.scale,
                    attended,
                    fewest_groups=-(-num_rows // MOST_DECODES),
                    num_threads=num_threads,
                ),
                layer.call_after(hidden, attended, hidden, self._room, num_threads=num_threads),
            )
        return calls
