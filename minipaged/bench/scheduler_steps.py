"""Measure a step's bookkeeping without a model: the scheduler, the block pool, the outputs and the input."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from minipaged.attention.paged_layout import PagedLayout
from minipaged.attention.reference import reference_attention
from minipaged.engine.output_processor import OutputProcessor
from minipaged.errors import ConfigError
from minipaged.kv.block_manager import BlockManager
from minipaged.kv.block_table import slot_mapping
from minipaged.kv.block_usage import BlockUsage, count_blocks
from minipaged.kv.cache import KVCache, write_kv
from minipaged.kv.prefix_hash import PrefixHasher
from minipaged.kv.size import blocks_needed
from minipaged.loading.loader import LoadedModel, load_model
from minipaged.request import Request
from minipaged.runner.decode_inputs import arrays_of, pad_rows
from minipaged.runner.model_runner import results_of
from minipaged.runner.step_batch import build_step_batch, find_logits_rows
from minipaged.sampling.params import SamplingParams
from minipaged.sampling.sampler import SampledToken
from minipaged.scheduler.scheduler import Scheduler
from minipaged.transfer import pack

TOKEN_ID = 5


@dataclass(frozen=True)
class Pool:
    """The pool, and the number of requests that run in it.

    Attributes:
        num_requests: number of requests; all run at the same time.
        num_blocks: blocks in the pool, including the null block.
        block_size: tokens per block.
        num_steps: steps that are measured.
    """

    num_requests: int = 1024
    num_blocks: int = 2**20
    block_size: int = 64
    num_steps: int = 32


@dataclass
class StepTimes:
    """Seconds of CPU time of the parts of each step. None of these parts waits for anything.

    Attributes:
        schedule: choosing the requests to run and their blocks, and hashing and caching full blocks.
        prepare: making the input: token ids, positions, slots, block tables, and the rows to sample
            from, packed for one copy to the device.
        take_in: turning the numbers that are read back into tokens of outputs, and counting blocks.
    """

    schedule: list[float] = field(default_factory=list)
    prepare: list[float] = field(default_factory=list)
    take_in: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class StepCost:
    """The time of a step at one context length, in seconds. Each time is the median over the steps.

    Attributes:
        context: tokens of the shortest prompt. The others are longer by less than a block.
        num_requests: number of requests that are scheduled in each step.
        schedule, prepare, take_in: as in `StepTimes`.
    """

    context: int
    num_requests: int
    schedule: float
    prepare: float
    take_in: float

    @property
    def bookkeeping(self) -> float:
        """Time of scheduler and pool, which must not depend on the lengths of the requests.

        The time of the input does depend on them, since block tables grow with the requests.
        """
        return self.schedule + self.take_in


def measure_steps(pool: Pool, contexts: Sequence[int], tell: Callable[[str], None]) -> list[StepCost]:
    """For each context length, run all requests and measure decode steps.

    Args:
        pool: the sizes.
        contexts: the context lengths, each the tokens of the shortest prompt. The other prompts are longer by
            less than a block.
        tell: called with a line of text at each new context length.

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
        # The first tokens differ, so the requests share no blocks. The lengths are spread evenly over a
        # block, so the same number of requests fill a block in each step.
        prompt = [number, *[TOKEN_ID] * (context - 1 + number % pool.block_size)]
        params = SamplingParams(temperature=0, max_tokens=num_outputs + 1, ignore_eos=True)
        request = Request(str(number), prompt, params, num_outputs + 1, sampling_seed=0, arrival=number)
        scheduler.add(request)
        processors[request.request_id] = OutputProcessor(request, manager, model, arrival_time=0.0)
    layout, usage = locating_layout(pool.block_size), BlockUsage()
    times = StepTimes()
    for _ in range(num_outputs):
        _step(scheduler, manager, layout, processors, usage, times)
    # The first step is left out: it admits all requests and computes the whole prompts.
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
    """Do a step of the engine without computing anything: every sequence gets the same token.

    The preparation of sampling is left out, since the engine does it while the device computes.
    """
    began = time.process_time()
    plan = scheduler.schedule()
    planned = time.process_time()
    batch = build_step_batch(plan.scheduled)
    rows = find_logits_rows(batch)
    arrays = arrays_of(batch, layout.locate(batch))
    if batch.is_decode:  # as if it were replayed in a bucket of its size
        arrays = pad_rows(arrays, len(batch.items))
    pack([*arrays, rows.last], pin_memory=False)
    prepared = time.process_time()
    tokens = [SampledToken(TOKEN_ID) for _ in rows.samples]
    count_blocks(usage, scheduler.queues.running, manager.num_blocks_in_tables)
    for result in results_of(batch, rows, tokens):
        item = result.item
        item.seq.num_computed_tokens += item.num_tokens
        processors[item.request.request_id].take(result)
    times.schedule.append(planned - began)
    times.prepare.append(prepared - planned)
    times.take_in.append(time.process_time() - prepared)


def locating_layout(block_size: int) -> PagedLayout:
    """A layout that only prepares a step's input. Its cache is too small to hold any tokens."""
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
