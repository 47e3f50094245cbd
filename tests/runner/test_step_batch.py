"""build_step_batch: the tensors of a step, without padding, decodes first."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.attention.metadata import AttentionMetadata
from minipaged.attention.paged_layout import PagedLayout, metadata_of
from minipaged.attention.reference import reference_attention
from minipaged.kv.block_table import SlotMapping, slot_mapping
from minipaged.kv.cache import KVCache, write_kv
from minipaged.request import Request, Sequence
from minipaged.runner.step_batch import StepBatch, build_step_batch
from minipaged.sampling.params import SamplingParams
from minipaged.scheduler.scheduler import ScheduledSequence
from minipaged.transfer import to_device

CPU = torch.device("cpu")


def item(token_ids: list[int], block_ids: Seq[int], start: int, end: int) -> ScheduledSequence:
    """Compute positions `start` to `end - 1` of a sequence with this table."""
    seq = Sequence(token_ids)
    seq.block_table.extend(block_ids)
    seq.num_computed_tokens = start
    request = Request("r", token_ids, SamplingParams(), 1, 0, 0, sequences=[seq])
    return ScheduledSequence(request, seq, end - start)


def build(items: list[ScheduledSequence]) -> StepBatch:
    return build_step_batch(items)


def locate(batch: StepBatch, block_size: int = 4, slots: SlotMapping = slot_mapping) -> AttentionMetadata:
    cache = KVCache(
        num_layers=1,
        num_blocks=1,
        block_size=block_size,
        num_kv_heads=1,
        head_dim=1,
        dtype=torch.float32,
        device=CPU,
    )
    layout = PagedLayout(
        cache, attention=reference_attention, write_kv=write_kv, slot_mapping=slots, scale=1.0
    )
    return metadata_of(batch, to_device(layout.locate(batch), CPU))


def test_by_hand() -> None:
    prompt = item([10, 11, 12, 13, 14, 15], [7, 1], 0, 6)
    decode = item([20, 21, 22], [3], 2, 3)
    chunk = item(list(range(30, 42)), [2, 9, 4], 5, 10)
    batch = build([prompt, decode, chunk])
    assert batch.items == [decode, prompt, chunk]
    assert batch.token_ids.tolist() == [22, 10, 11, 12, 13, 14, 15, 35, 36, 37, 38, 39]
    assert batch.positions.tolist() == [2, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    metadata = locate(batch)
    assert metadata.query_start_loc.tolist() == [0, 1, 7, 12]
    assert metadata.seq_lens.tolist() == [3, 6, 10]
    assert metadata.block_tables.tolist() == [[3, 0, 0], [7, 1, 0], [2, 9, 4]]
    assert metadata.slot_mapping.tolist() == [14, 28, 29, 30, 31, 4, 5, 37, 38, 39, 16, 17]
    assert metadata.num_decodes == 1


def test_dtypes_and_plain_copies() -> None:
    batch = build([item([1, 2, 3], [5], 1, 3), item([4], [6], 0, 1)])
    metadata = locate(batch)
    assert batch.token_ids.dtype == batch.positions.dtype == np.int64
    assert metadata.slot_mapping.dtype == torch.int64
    for tensor in (metadata.query_start_loc, metadata.seq_lens, metadata.block_tables):
        assert tensor.dtype == torch.int32
    assert metadata.query_start_list == tuple(metadata.query_start_loc.tolist()) == (0, 1, 3)
    assert metadata.seq_lens_list == tuple(metadata.seq_lens.tolist()) == (1, 3)


def test_a_prompt_of_one_token_counts_as_a_decode() -> None:
    """For attention it is one: a single query at the end of the sequence."""
    batch = build([item([1, 2], [5], 0, 2), item([9], [6], 0, 1)])
    assert locate(batch).num_decodes == 1
    assert batch.token_ids.tolist() == [9, 1, 2]


def test_the_order_is_kept_within_decodes_and_within_the_rest() -> None:
    items = [item([i] * 3, [i + 1], 3 - size, 3) for i, size in enumerate([2, 1, 3, 1, 1, 2])]
    assert build(items).items == [items[i] for i in (1, 3, 4, 0, 2, 5)]


def test_without_a_cache_each_sequence_is_computed_from_its_start() -> None:
    items = [item([20, 21, 22], [], 2, 3), item([10, 11, 12, 13], [], 1, 3)]
    batch = build_step_batch(items, from_start=True)
    assert batch.token_ids.tolist() == [20, 21, 22, 10, 11, 12]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.spans == [(0, 3), (0, 3)]
    assert batch.rows == [slice(0, 3), slice(3, 6)]


def test_the_tables_are_copied() -> None:
    """A table may grow while the step still runs."""
    scheduled = item([1, 2, 3], [5], 2, 3)
    metadata = locate(build([scheduled]))
    scheduled.seq.block_table[0] = 8
    assert metadata.block_tables.tolist() == [[5]]


def test_the_slot_mapping_is_a_seam() -> None:
    calls: list[tuple[list[int], int, int, int]] = []

    def recorded(block_ids, start, end, block_size):
        calls.append((block_ids.tolist(), start, end, block_size))
        return slot_mapping(block_ids, start, end, block_size)

    items = [item([1] * 5, [2, 3], 1, 5), item([1] * 4, [4], 3, 4)]
    locate(build(items), slots=recorded)
    assert calls == [([4], 3, 4, 4), ([2, 3], 1, 5, 4)]


def test_a_decode_step_has_the_same_slots_with_a_function_of_the_readers() -> None:
    """The engine's own function has a twin for all sequences at once. A reader's is called for each."""
    items = [item([1] * 5, [2, 3], 4, 5), item([1] * 4, [4], 3, 4)]
    calls = 0

    def readers(block_ids, start, end, block_size):
        nonlocal calls
        calls += 1
        return slot_mapping(block_ids, start, end, block_size)

    batch = build(items)
    assert batch.is_decode
    assert not build([item([1, 2, 3], [5], 1, 3)]).is_decode
    assert locate(batch, slots=readers).slot_mapping.tolist() == [12, 19]
    assert calls == 2
    assert locate(batch).slot_mapping.tolist() == [12, 19]


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[ScheduledSequence], int]:
    block_size = draw(st.integers(1, 5))
    items = []
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 12))
        end = draw(st.integers(1, length))
        start = draw(st.one_of(st.just(end - 1), st.integers(0, end - 1)))
        token_ids = draw(st.lists(st.integers(0, 99), min_size=length, max_size=length))
        num_blocks = -(-end // block_size)
        block_ids = draw(st.lists(st.integers(1, 50), min_size=num_blocks, max_size=num_blocks))
        items.append(item(token_ids, block_ids, start, end))
    return items, block_size


@settings(max_examples=60, deadline=None)
@given(step=steps())
def test_every_row_says_where_its_token_is(step: tuple[list[ScheduledSequence], int]) -> None:
    items, block_size = step
    batch = build(items)
    metadata = locate(batch, block_size)
    starts = metadata.query_start_loc.tolist()
    assert batch.rows == [slice(*each) for each in pairwise(starts)]
    assert len(batch.items) == len(items)
    assert {id(i) for i in batch.items} == {id(i) for i in items}
    assert (starts[0], starts[-1]) == (0, sum(i.num_tokens for i in items))
    assert batch.token_ids.shape == batch.positions.shape == metadata.slot_mapping.shape == (starts[-1],)
    sizes = [end - start for start, end in pairwise(starts)]
    assert sizes == [i.num_tokens for i in batch.items]
    assert all(size == 1 for size in sizes[: metadata.num_decodes])
    assert all(size > 1 for size in sizes[metadata.num_decodes :])
    for s, scheduled in enumerate(batch.items):
        seq, table = scheduled.seq, metadata.block_tables[s].tolist()
        num_blocks = len(seq.block_table)
        assert table == list(seq.block_table) + [0] * (len(table) - num_blocks)
        assert metadata.seq_lens[s] == seq.num_computed_tokens + scheduled.num_tokens
        for i, row in enumerate(range(starts[s], starts[s + 1])):
            position = seq.num_computed_tokens + i
            assert batch.positions[row] == position
            assert batch.token_ids[row] == seq.token_ids[position]
            slot = table[position // block_size] * block_size + position % block_size
            assert metadata.slot_mapping[row] == slot
