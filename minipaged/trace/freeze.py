"""Makes a `TraceState`, which never changes, from a `Replay`, which does."""

from __future__ import annotations

from collections import defaultdict

from minipaged.kv.block_pool import NULL_BLOCK
from minipaged.trace.replay import Replay
from minipaged.trace.replayed import ReplayedRequest, ReplayedSequence
from minipaged.trace.state import BlockState, Chunk, Holder, RequestState, SequenceState, TraceState
from minipaged.trace.waste import count_slots


def freeze(replay: Replay) -> TraceState:
    """An immutable copy of the state. Making it takes O(blocks + all tokens of the trace so far)."""
    plan = replay.plan
    sequences = {seq.seq_id: seq for request in replay.requests for seq in request.sequences}
    return TraceState(
        step=replay.step,
        time=replay.time,
        blocks=_blocks(replay),
        regions=tuple(region for _, region in sorted(replay.regions.items())),
        requests=tuple(map(_request, replay.requests)),
        sequences={seq_id: _sequence(seq) for seq_id, seq in sorted(sequences.items())},
        running=tuple(request.request_id for request in replay.running),
        waiting=tuple(request.request_id for request in replay.waiting),
        swapped=tuple(request.request_id for request in replay.swapped),
        chunks=() if plan is None else tuple(map(Chunk, plan.seq_ids, plan.starts, plan.num_tokens)),
        token_budget=replay.engine.max_num_batched_tokens,
        num_free=replay.num_free,
        num_preemptions=replay.num_preemptions,
        num_evictions=replay.pool.num_evictions,
        num_copied_blocks=replay.num_copied_blocks,
        num_hit_tokens=replay.num_hit_tokens,
        slots=count_slots(replay),
    )


def _blocks(replay: Replay) -> tuple[BlockState, ...]:
    size, pool = replay.engine.block_size, replay.pool
    holders: defaultdict[int, list[Holder]] = defaultdict(list)
    filled: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for seq_id, seq in sorted(replay.sequences.items()):
        for i, block_id in enumerate(seq.block_ids):
            holders[block_id].append(Holder(seq_id, i))
            tokens = tuple(seq.token_ids[i * size : min((i + 1) * size, seq.num_computed_tokens)])
            # Holders of a shared block may have computed different numbers of its tokens.
            filled[block_id] = max(filled[block_id], tokens, key=len)
    blocks: list[BlockState] = []
    for block_id, ref_cnt in enumerate(pool.ref_cnt):
        cached = pool.cached.get(block_id)
        if cached is not None and ref_cnt == 0:
            filled[block_id] = cached.token_ids
        blocks.append(
            BlockState(
                block_id,
                ref_cnt,
                holders=tuple(holders[block_id]),
                block_hash=None if cached is None else cached.block_hash,
                parent_block_hash=None if cached is None else cached.parent_block_hash,
                token_ids=() if block_id == NULL_BLOCK else filled[block_id],
            )
        )
    return tuple(blocks)


def _request(request: ReplayedRequest) -> RequestState:
    added = request.added
    return RequestState(
        request_id=added.request_id,
        status=request.status,
        seq_ids=tuple(seq.seq_id for seq in request.sequences),
        max_tokens=added.max_tokens,
        num_seqs=added.num_seqs,
        is_beam_search=added.is_beam_search,
        priority=added.priority,
        num_preemptions=request.num_preemptions,
        num_cached_tokens=request.num_cached_tokens,
    )


def _sequence(seq: ReplayedSequence) -> SequenceState:
    return SequenceState(
        seq_id=seq.seq_id,
        request_id=seq.request.request_id,
        index=seq.index,
        num_prompt_tokens=seq.request.num_prompt_tokens,
        token_ids=tuple(seq.token_ids),
        text="".join(seq.texts),
        num_computed_tokens=seq.num_computed_tokens,
        block_ids=tuple(seq.block_ids),
        cpu_block_ids=seq.cpu_block_ids,
        region_start=seq.region_start,
        finish_reason=seq.finish_reason,
    )
