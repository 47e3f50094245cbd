"""What the bookkeeping of a step costs, without a model: scheduler, block pool, outputs, and the input."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from minipaged.attention.paged_layout import PagedLayout
from minipaged.attention.reference import reference_attention
from minipaged.engine.output_processor import OutputProcessor
from minipaged.engine.stats import count_blocks
from minipaged.errors import ConfigError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_table import slot_mapping
from minipaged.kv.block_usage import BlockUsage
from minipaged.kv.cache import KVCache, write_kv
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.kv.size import blocks_needed
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.request import Request
from minipaged.runner.model_runner import SequenceResult
from minipaged.runner.step_batch import build_step_batch
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SampledToken
from minipaged.scheduler.scheduler import Scheduler

TOKEN_ID = 5


@dataclass(frozen=True)
class Pool:
    """The pool, and how many requests run in it.

    Attributes:
        num_requests: all of them run.
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block.
        num_steps: steps that are measured.
    """

    num_requests: int = 1024
    num_blocks: int = 2**20
    block_size: int = 64
    num_steps: int = 32


@dataclass
class StepTimes:
    """Seconds of each step's parts.

    Attributes:
        schedule: the plan: who runs, with which blocks; full blocks are hashed and cached.
        prepare: the input: token ids, positions, slots and block tables as arrays.
        take_in: tokens are appended, outputs extended, blocks counted.
    """

    schedule: list[float] = field(default_factory=list)
    prepare: list[float] = field(default_factory=list)
    take_in: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class StepCost:
    """What a step costs at one context length, in seconds: medians over the steps.

    Attributes:
        context: tokens of each request when it began.
        num_requests: scheduled in each step.
        schedule, prepare, take_in: as in `StepTimes`.
    """

    context: int
    num_requests: int
    schedule: float
    prepare: float
    take_in: float

    @property
    def bookkeeping(self) -> float:
        """Scheduler and pool: what must not depend on the lengths. (The input holds the block tables, which
        are as long as the requests.)"""
        return self.schedule + self.take_in


def measure_steps(pool: Pool, contexts: Sequence[int], tell: Callable[[str], None]) -> list[StepCost]:
    """Let all requests run, with so many tokens each, and measure decode steps.

    Args:
        pool: the sizes.
        contexts: tokens of each request, and up to a block more.
        tell: hears what goes on.

    Raises:
        ConfigError: the pool is too small for a context.
    """
    for context in contexts:
        longest = context + pool.block_size + pool.num_steps
        needed = 1 + pool.num_requests * blocks_needed(longest, pool.block_size)
        if needed > pool.num_blocks:
            raise ConfigError(
                f"{pool.num_requests:,} requests of {context:,} tokens need {needed:,} blocks of "
                f"{pool.block_size} tokens, but the pool has {pool.num_blocks:,}"
            )
    loaded = load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))
    model = replace(loaded, tokenizer=None)
    costs: list[StepCost] = []
    for context in contexts:
        tell(f"{pool.num_requests:,} requests of {context:,} tokens")
        costs.append(_measure(pool, context, model))
    return costs


def _measure(pool: Pool, context: int, model: LoadedModel) -> StepCost:
    manager = BlockManager(pool.num_blocks, pool.block_size, PrefixHasher("sha256"))
    scheduler = Scheduler(
        manager,
        max_num_seqs=pool.num_requests,
        max_num_batched_tokens=pool.num_requests * (context + pool.block_size),
    )
    processors: dict[str, OutputProcessor] = {}
    num_outputs = pool.num_steps + 1
    for number in range(pool.num_requests):
        # No two begin alike, so that none shares blocks; and their ends are spread over a block, so that in
        # each step as many as in any other fill one.
        prompt = [number, *[TOKEN_ID] * (context - 1 + number % pool.block_size)]
        params = SamplingParams(temperature=0, max_tokens=num_outputs + 1, ignore_eos=True)
        request = Request(str(number), prompt, params, num_outputs + 1, sampling_seed=0, arrival=number)
        scheduler.add(request)
        processors[request.request_id] = OutputProcessor(request, manager, model, arrival_time=0.0)
    layout, usage = locating_layout(pool.block_size), BlockUsage()
    times = StepTimes()
    for _ in range(num_outputs):
        _step(scheduler, manager, layout, processors, usage, times)
    # The first step is the one that admits everybody, with the whole prompts.
    return StepCost(
        context=context,
        num_requests=pool.num_requests,
        schedule=median(times.schedule[1:]),
        prepare=median(times.prepare[1:]),
        take_in=median(times.take_in[1:]),
    )


def _step(
    scheduler: Scheduler,
    manager: BlockManager,
    layout: PagedLayout,
    processors: dict[str, OutputProcessor],
    usage: BlockUsage,
    times: StepTimes,
) -> None:
    """A step of the engine, in which every sequence gets the same token."""
    began = time.perf_counter()
    plan = scheduler.schedule()
    planned = time.perf_counter()
    layout.locate(build_step_batch(plan.scheduled))
    prepared = time.perf_counter()
    count_blocks(usage, plan.scheduled, scheduler.queues.running, manager.num_blocks_in_tables)
    for item in plan.scheduled:
        sampled = [SampledToken(TOKEN_ID)]
        item.seq.num_computed_tokens += item.num_tokens
        processors[item.request.request_id].take(SequenceResult(item, sampled, None, []))
    times.schedule.append(planned - began)
    times.prepare.append(prepared - planned)
    times.take_in.append(time.perf_counter() - prepared)


def locating_layout(block_size: int) -> PagedLayout:
    """A layout that can locate a step's sequences; its cache is too small to hold anything."""
    cache = KVCache(
        num_layers=1,
        num_blocks=2,
        block_size=block_size,
        num_kv_heads=1,
        head_dim=2,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return PagedLayout(
        cache, attention=reference_attention, write_kv=write_kv, slot_mapping=slot_mapping, scale=1.0
    )
