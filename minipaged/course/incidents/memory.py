"""Incidents in which memory is short, although it need not be."""

from __future__ import annotations

import random
from collections.abc import Iterator

from minipaged.config import EngineConfig
from minipaged.course.incidents.incident import Finding
from minipaged.course.incidents.workload import Arrival, exactly, play, story
from minipaged.engine.llm_engine import LLMEngine
from minipaged.events import Observer, RequestAdded, StepFinished
from minipaged.kv import copy_on_write
from minipaged.kv.copy_on_write import Table
from minipaged.parts import Parts
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.params import SamplingParams
from minipaged.trace.state import SequenceState, TraceState
from minipaged.trace.trace import Trace


class _LosesABlock:
    """The engine's `free`, except that the last block of an aborted request is never freed."""

    def __init__(self) -> None:
        self._is_aborting = False

    def free(self, table: Table, ref_cnt: list[int]) -> list[int]:
        freed = copy_on_write.free(table, ref_cnt)
        return freed[1:] if self._is_aborting else freed

    def abort(self, engine: LLMEngine, request_id: str) -> None:
        self._is_aborting = True
        engine.abort_request(request_id)
        self._is_aborting = False


def leak(observer: Observer) -> None:
    """Each request that is aborted because its client went away loses a block of the pool."""
    draw, fault = random.Random(11), _LosesABlock()
    config = EngineConfig(num_blocks=65, max_model_len=256, parts=Parts(free=fault.free))
    arrivals = []
    for number in range(36):
        step = 4 * number
        leaves = step + draw.randint(3, 12) if draw.random() < 0.5 else None
        prompt = story(draw, draw.randint(1, 4))
        arrivals.append(Arrival(step, f"r{number}", prompt, exactly(draw.randint(16, 40)), leaves=leaves))
    play(LLMEngine(config, observer=observer), arrivals, fault.abort)


def thrashing(observer: Observer) -> None:
    """The batch limit admits more requests than the pool holds, so they are preempted again and again."""
    draw = random.Random(23)
    config = EngineConfig(num_blocks=33, max_model_len=256, max_num_seqs=32, enable_prefix_caching=False)
    arrivals = [
        Arrival(2 * number, f"r{number}", story(draw, 1), exactly(draw.randint(90, 120)))
        for number in range(16)
    ]
    play(LLMEngine(config, observer=observer), arrivals)


def large_blocks(observer: Observer) -> None:
    """Blocks have 128 tokens, but chats have only 30 to 60."""
    draw = random.Random(37)
    config = EngineConfig(num_blocks=13, block_size=128, max_model_len=256, preemption_mode="never")
    arrivals = [
        Arrival(number, f"r{number}", story(draw, 1), exactly(draw.randint(12, 32))) for number in range(40)
    ]
    play(LLMEngine(config, observer=observer), arrivals)


def idle_pool(observer: Observer) -> None:
    """Requests are admitted by their largest possible length, but they end long before it."""
    draw = random.Random(41)
    config = EngineConfig(num_blocks=129, max_model_len=512, preemption_mode="never")
    short = SamplingParams(temperature=0, max_tokens=400, stop=["."], min_tokens=6)
    arrivals = [Arrival(number, f"r{number}", story(draw, 1), short) for number in range(40)]
    play(LLMEngine(config, observer=observer), arrivals)


def wide_beams(observer: Observer) -> None:
    """One beam search holds most of the pool while chats wait."""
    draw = random.Random(53)
    config = EngineConfig(num_blocks=49, max_model_len=256, preemption_mode="never")
    arrivals = [
        Arrival(3 * number, f"r{number}", story(draw, 1), exactly(draw.randint(10, 20)))
        for number in range(30)
    ]
    beams = BeamSearchParams(beam_width=8, max_tokens=64)
    arrivals.append(Arrival(20, "r30", story(draw, 2), beams))
    play(LLMEngine(config, observer=observer), arrivals)


def find_leak(trace: Trace) -> Finding:
    """How many blocks no table names, although the engine does not count them as free."""
    ends = [event for event in trace.events if isinstance(event, StepFinished)]
    lost = [_num_unheld(trace.at(end.step)) - end.num_free for end in ends]
    first = next(end.step for end, count in zip(ends, lost, strict=True) if count)
    return Finding(
        lost[-1],
        f"After step {trace.num_steps} no table names a block, and the engine counts {ends[-1].num_free} "
        f"free blocks of {trace.engine.num_blocks - 1}: {lost[-1]} are lost. The first is lost in step "
        f"{first}. Look at the requests that ended just before each loss: all were aborted, and finished "
        "ones lose nothing. So the path on which an abort frees its blocks forgets one.",
    )


def _num_unheld(state: TraceState) -> int:
    """How many blocks should be free, because no table names them. The null block does not count."""
    return sum(block.ref_cnt == 0 for block in state.blocks)


def find_thrashing(trace: Trace) -> Finding:
    """The share of computed tokens that had been computed before."""
    computed: set[tuple[int, int]] = set()
    num_tokens = 0
    for step in range(1, trace.num_steps + 1):
        for chunk in trace.at(step).chunks:
            num_tokens += chunk.num_tokens
            computed.update((chunk.seq_id, chunk.start + i) for i in range(chunk.num_tokens))
    again = 100 * (1 - len(computed) / num_tokens)
    state = trace.final()
    return Finding(
        round(again, 1),
        f"The steps computed {num_tokens:,} tokens at {len(computed):,} different positions: {again:.1f} % "
        f"were computed again, after {state.num_preemptions} preemptions. In the timeline, requests "
        "alternate between decode, preempted and prefill. The pool holds fewer of them than the batch limit "
        "lets in: lower max_num_seqs, or give the pool more blocks.",
        tolerance=2,
    )


def find_large_blocks(trace: Trace) -> Finding:
    """The share of empty slots in used blocks, after the step with the most used blocks."""
    fullest = min(trace.waste(), key=lambda each: each.slots.free)
    used = fullest.slots.num_slots - fullest.slots.free
    empty = 100 * (1 - fullest.slots.token_states / used)
    size = trace.engine.block_size
    return Finding(
        round(empty, 1),
        f"After step {fullest.step}, {used:,} slots are in used blocks, and {fullest.slots.token_states:,} "
        f"of them hold a token: {empty:.1f} % are empty. A block has {size} slots, and only its own sequence "
        "may fill it: on average half a block of each sequence is wasted, and of a sequence shorter than a "
        "block more. Smaller blocks hold more users in the same memory.",
        tolerance=2,
    )


def find_idle_pool(trace: Trace) -> Finding:
    """The largest share of the pool that was in use while a request waited."""
    usable = trace.engine.num_blocks - 1
    states = [trace.at(step) for step in range(1, trace.num_steps + 1)]
    busiest = max((state for state in states if state.waiting), key=lambda state: usable - state.num_free)
    used = 100 * (1 - busiest.num_free / usable)
    asked = max(event.max_tokens for event in trace.events if isinstance(event, RequestAdded))
    longest = max(len(seq.token_ids) - seq.num_prompt_tokens for seq in _sequences(states))
    return Finding(
        round(used, 1),
        f"After step {busiest.step}, {len(busiest.waiting)} requests wait and {used:.1f} % of the pool is in "
        f"use, which is the most while anyone waits. Each request may ask for {asked} tokens, and the "
        f"longest output has {longest}. A request is admitted only if the most that all may need fits, so "
        "the memory waits for tokens that never come. Admit what fits now, and preempt when it does not.",
        tolerance=2,
    )


def _sequences(states: list[TraceState]) -> Iterator[SequenceState]:
    for state in states:
        yield from state.sequences.values()


def find_wide_beams(trace: Trace) -> Finding:
    """The request that holds the most blocks in any step in which other requests wait."""
    most, holder, when = 0, "", 0
    for step in range(1, trace.num_steps + 1):
        state = trace.at(step)
        if not state.waiting:
            continue
        for request in state.requests:
            held = {b for seq_id in request.seq_ids for b in state.sequences[seq_id].block_ids}
            if len(held) > most:
                most, holder, when = len(held), request.request_id, step
    others = trace.at(when)
    width = next(each.num_seqs for each in others.requests if each.request_id == holder)
    return Finding(
        holder,
        f"After step {when}, {holder} holds {most} of {trace.engine.num_blocks - 1} blocks, and "
        f"{len(others.waiting)} requests wait. It is a beam search of {width} beams: in its table view, they "
        "share the blocks of the prompt and little more. Until it ends, the memory that its beams may need "
        "is kept for it.",
    )
