"""Describes what happened to the requests between two snapshots."""

from __future__ import annotations

from minipaged.request import RequestStatus
from minipaged.view.labels import Labels
from minipaged.view.pool_snapshot import PoolSnapshot, RequestSnapshot, SequenceKey


def events(before: PoolSnapshot, after: PoolSnapshot, labels: Labels) -> list[str]:
    """One line for each request that was admitted, resumed or preempted, or that ended.

    The snapshots are one step apart. A request that arrived and ended within the step gets no line.
    """
    old = {request.request_id: request for request in (*before.running, *before.waiting)}
    new = {request.request_id: request for request in (*after.running, *after.waiting)}
    lines = []
    for request in after.waiting:
        was = old.get(request.request_id)
        if was is not None and request.num_preemptions > was.num_preemptions:
            lines.append(f"{_letter(request, labels)} preempted: loses {_blocks_lost(was)}")
    for request in after.running:
        was = old.get(request.request_id)
        if was is None or was.status is RequestStatus.WAITING:
            lines.append(f"{_letter(request, labels)} admitted: {_blocks_held(request, after)}")
        elif was.status is RequestStatus.PREEMPTED:
            lines.append(f"{_letter(request, labels)} resumed: {_blocks_held(request, after)}")
    lines += [f"{_letter(request, labels)} ended" for key, request in old.items() if key not in new]
    return [f"step {after.num_steps}: {line}" for line in lines]


def _letter(request: RequestSnapshot, labels: Labels) -> str:
    return labels[SequenceKey(request.request_id)].letter


def _blocks_lost(was: RequestSnapshot) -> str:
    return _count(len({block_id for seq in was.sequences for block_id in seq.block_ids}))


def _blocks_held(request: RequestSnapshot, after: PoolSnapshot) -> str:
    held = {block_id for seq in request.sequences for block_id in seq.block_ids}
    shared = sum(
        any(key.request_id != request.request_id for key in after.blocks[block_id].holders)
        for block_id in held
    )
    return _count(len(held)) + (f", {shared} of them shared" if shared else "")


def _count(blocks: int) -> str:
    return f"{blocks} block" if blocks == 1 else f"{blocks} blocks"
