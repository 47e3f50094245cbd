"""RecordedDecode: decode steps on a CPU as recorded sequences of compiled calls.

On a CPU as on a GPU, a step of few tokens consists of many short calls. Here they are four in each layer.
While Python prepares the next call, nothing is read from memory, and reading from memory is what limits a
step of one sequence. So the calls of a step of n sequences are recorded once, and every later step of n
sequences makes them in one go.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from minipaged.attention.paged_layout import PagedLayout
from minipaged.cpu.attention.attention import call_attention, can_attend, check_attended
from minipaged.cpu.attention.cache_writes import call_write_kv, check_written
from minipaged.cpu.attention.query_groups import QueryGroups, group_decodes
from minipaged.cpu.compiler.calls import Call, CallSequence
from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.layers.layer import TOKENS_AT_ONCE
from minipaged.cpu.layers.workspace import LayerWorkspace
from minipaged.kv.size import blocks_needed
from minipaged.model.decoder import Decoder
from minipaged.runner.decode_inputs import DecodeInputs, arrays_of
from minipaged.runner.step_batch import StepBatch
from minipaged.transfer import IntArray

MOST_ROWS = TOKENS_AT_ONCE
"""The most sequences in one step. Each has one token, and a layer computes at most this many tokens in one
call."""


def can_record(decoder: Decoder, layout: PagedLayout) -> TypeGuard[CompiledDecoder]:
    """Whether a decoder's decode steps consist of compiled calls only."""
    config = decoder.config
    return isinstance(decoder, CompiledDecoder) and all(
        can_attend(config.num_heads, config.head_dim, decoder.dtype, kv_layer)
        for kv_layer in layout.cache.layers
    )


BEFORE, WRITE, ATTEND, AFTER = range(4)
"""A layer's calls, in the order in which they are made."""


class RecordedDecode:
    """Implements `DecodeSteps` for the CPU. The first step of each batch size records the calls.

    Args:
        decoder: the model, for which `can_record` holds.
        layout: where the model's keys and values are.
        max_num_seqs: the largest number of sequences in one step.
        max_model_len: tokens of the longest sequence.
    """

    def __init__(
        self, decoder: CompiledDecoder, layout: PagedLayout, *, max_num_seqs: int, max_model_len: int
    ) -> None:
        self._decoder = decoder
        self._layout = layout
        self._most_rows = rows = min(max_num_seqs, MOST_ROWS)
        config = decoder.config
        self._inputs = DecodeInputs.of_padding(
            rows, blocks_needed(max_model_len, layout.block_size), decoder.device
        )
        self._heads_of_qkv = config.num_heads, config.num_kv_heads, config.num_kv_heads
        empty = decoder.embed_tokens.weight.new_empty
        self._hidden = empty(rows, config.hidden_size)  # [B, hidden]
        self._normed = torch.empty_like(self._hidden)  # [B, hidden]
        self._cos = empty(rows, 1, config.head_dim // 2)  # [B, 1, D / 2]
        self._sin = torch.empty_like(self._cos)  # [B, 1, D / 2]
        self._heads = empty(rows, sum(self._heads_of_qkv), config.head_dim)  # [B, Hq + 2 * Hkv, D]
        self._attended = empty(rows, config.num_heads, config.head_dim)  # [B, Hq, D]
        self._workspace = LayerWorkspace(config, rows)
        rows_of_groups = torch.zeros(3, rows + 1, dtype=torch.int32, device="cpu")  # [3, B + 1]
        self._rows_of_groups = rows_of_groups.numpy()  # the same memory, faster to write to
        self._groups = QueryGroups(
            torch.arange(rows, dtype=torch.int32, device="cpu"), self._inputs.seq_lens, *rows_of_groups
        )
        self._first_rows: dict[int, DecodeInputs] = {}  # making these views takes longer than filling them
        self._recorded: dict[tuple[int, int], CallSequence] = {}

    def bucket_of(self, batch: StepBatch) -> int | None:
        """The step's number of sequences; `None` if it is too large, or if the step is not all decodes."""
        num_rows = len(batch.items)
        return num_rows if len(batch.token_ids) == num_rows <= self._most_rows else None

    def run(self, batch: StepBatch, bucket: int, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Compute a step; see `DecodeSteps`."""
        located = self._layout.locate(batch)
        if bucket not in self._first_rows:
            self._first_rows[bucket] = self._inputs.first(bucket)
        inputs = self._first_rows[bucket]
        inputs.fill([torch.from_numpy(each) for each in arrays_of(batch, located)])
        if located.seq_lens.max() > located.block_tables.shape[1] * self._layout.block_size:
            raise IndexError("a block table is too short for its sequence")  # entries past its end are stale
        self._group(located.block_tables)
        entering = self._decoder.enter(inputs.token_ids, inputs.positions)
        for kept, given in zip((self._hidden, self._cos, self._sin), entering, strict=True):
            kept[:bucket].copy_(given)
        # PyTorch's number of threads may have changed since the recording.
        key = bucket, torch.get_num_threads()
        if key not in self._recorded:
            self._recorded[key] = CallSequence(self._calls(bucket))
        calls = self._recorded[key]
        calls.run()
        # All layers have the same slots and tables, so checking the first layer's calls is enough.
        check_written(calls.arguments[WRITE], inputs.slot_mapping)
        check_attended(calls.arguments[ATTEND])
        return self._normed[:bucket], torch.from_numpy(rows)

    def _group(self, block_tables: IntArray) -> None:
        """Write the groups of sequences that read the same blocks. Groups that are not needed stay empty."""
        members, starts, shared = group_decodes(block_tables)
        starts += [len(members)] * (len(members) - len(shared))
        for kept, given in zip(self._rows_of_groups, (members, starts, shared), strict=True):
            kept[: len(given)] = given

    def _calls(self, num_rows: int) -> list[Call]:
        """The calls of all layers and the last norm, for the first `num_rows` rows of our tensors."""
        inputs = self._inputs.first(num_rows)
        hidden, cos, sin, heads, attended = (
            kept[:num_rows] for kept in (self._hidden, self._cos, self._sin, self._heads, self._attended)
        )
        q, k, v = heads.split(self._heads_of_qkv, dim=1)
        starts = self._groups.starts[: num_rows + 1]
        groups = QueryGroups(*(each[:num_rows] for each in self._groups))._replace(starts=starts)
        calls: list[Call] = []
        for layer, kv_layer in zip(self._decoder.compiled_layers, self._layout.cache.layers, strict=True):
            threads, tables = layer.threads_for_decodes, inputs.block_tables
            of_layer = {
                BEFORE: layer.call_before(hidden, cos, sin, heads, self._workspace, num_threads=threads),
                WRITE: call_write_kv(kv_layer, k, v, inputs.slot_mapping, num_threads=threads),
                ATTEND: call_attention(
                    q, kv_layer, tables, groups, self._layout.scale, attended, num_threads=threads
                ),
                AFTER: layer.call_after(hidden, attended, hidden, self._workspace, num_threads=threads),
            }
            calls += [of_layer[each] for each in range(len(of_layer))]
        norm, normed = self._decoder.compiled_norm, self._normed[:num_rows]
        return [*calls, norm.call(hidden, normed, num_threads=calls[0].num_threads)]
