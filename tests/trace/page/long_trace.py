"""A long trace of made-up requests over a large pool, which no model has to run for."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from minipaged.events import (
    BlockRemoved,
    BlocksReleased,
    BlocksTaken,
    BlockStored,
    EngineStarted,
    Event,
    RequestAdded,
    RequestAdmitted,
    RequestFinished,
    SequenceFinished,
    StepExecuted,
    StepFinished,
    StepPlanned,
    TokenSampled,
)
from minipaged.trace.trace import Trace

BLOCK_SIZE = 16
MOST_RUNNING = 128
BUDGET = 2048


@dataclass
class _Run:
    seq_id: int
    tokens: list[int]
    end: int
    computed: int = 0
    table: list[int] = field(default_factory=list)

    @property
    def request_id(self) -> str:
        return f"request-{self.seq_id}"


def long_trace(num_steps: int, num_blocks: int) -> Trace:
    """A trace of so many steps, in which the pool fills up and requests come and go."""
    rng = random.Random(0)
    engine = EngineStarted(
        model="made up", stage=None, kv_layout="paged", block_size=BLOCK_SIZE, num_blocks=num_blocks,
        num_cpu_blocks=0, max_model_len=4096, max_num_seqs=MOST_RUNNING, max_num_batched_tokens=BUDGET,
        enable_chunked_prefill=True, enable_prefix_caching=True, scheduling_policy="fcfs",
        preemption_mode="recompute", batching="continuous", fork_mode="share", reserve="max",
        region_allocator="first_fit",
    )  # fmt: skip
    events: list[Event] = []
    free = deque(range(1, num_blocks))
    cached: dict[int, str] = {}
    running: list[_Run] = []
    promised = num_seqs = 0
    for step in range(1, num_steps + 1):
        now = step / 100
        while len(running) < MOST_RUNNING and (promised + 64) < num_blocks - 1:
            tokens = [rng.randrange(32_000) for _ in range(rng.randrange(16, 400))]
            run = _Run(num_seqs, tokens, len(tokens) + rng.randrange(20, 600))
            num_seqs += 1
            promised += -(-run.end // BLOCK_SIZE)
            running.append(run)
            texts = tuple(f" w{token}" for token in tokens)
            most = run.end - len(tokens)
            events += [
                RequestAdded(
                    run.request_id,
                    run.seq_id,
                    now,
                    tuple(tokens),
                    texts,
                    most,
                    1,
                    False,
                    0,
                    None,
                    (0, run.seq_id),
                ),
                RequestAdmitted(run.request_id, 0),
            ]
        left, plan = BUDGET, []
        for run in running:
            count = min(left, len(run.tokens) - run.computed)
            if count == 0:
                continue
            left -= count
            need = -(-(run.computed + count) // BLOCK_SIZE) - len(run.table)
            taken = tuple(free.popleft() for _ in range(need))
            if taken:
                events += [BlockRemoved(block, cached.pop(block)) for block in taken if block in cached]
                run.table += taken
                events.append(BlocksTaken(run.seq_id, taken))
            plan.append((run, run.computed, count))
            for i in range(run.computed // BLOCK_SIZE, (run.computed + count) // BLOCK_SIZE):
                cached[run.table[i]] = f"{run.seq_id:08x}{i:08x}"
                parent = f"{run.seq_id:08x}{i - 1:08x}" if i else None
                events.append(BlockStored(run.table[i], run.seq_id, i, cached[run.table[i]], parent))
        events.append(
            StepPlanned(
                step, now, now + 0.001, tuple(run.seq_id for run, _, _ in plan),
                tuple(start for _, start, _ in plan), tuple(count for _, _, count in plan),
            )
        )  # fmt: skip
        events.append(StepExecuted(now + 0.008))
        for run, start, count in plan:
            run.computed = start + count
        ended: list[_Run] = []
        for run, _, _ in plan:
            if run.computed == len(run.tokens):
                token = rng.randrange(32_000)
                run.tokens.append(token)
                events.append(TokenSampled(run.seq_id, token, f" w{token}"))
                if len(run.tokens) >= run.end:
                    ended.append(run)
        for run in ended:
            running.remove(run)
            promised -= -(-run.end // BLOCK_SIZE)
            free.extend(reversed(run.table))
            events += [
                SequenceFinished(run.seq_id, "length", None),
                BlocksReleased(run.seq_id, tuple(run.table)),
                RequestFinished(run.request_id, now + 0.009),
            ]
        events.append(StepFinished(step, now + 0.0095, len(running), 0, 0, len(free)))
    return Trace(engine, events, title=f"{num_steps} steps over {num_blocks} blocks")
