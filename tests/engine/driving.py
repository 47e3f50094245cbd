"""Functions that make engines, run them, and compare their outputs with the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch

from minipaged import EngineConfig, LLMEngine, RequestOutput, SamplingParams
from minipaged.events import Observer
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from tests.oracle import Oracle

TIE = 1e-4
"""If the oracle's two best logits differ by at most this, either token is right."""


def make_engine(
    model: LoadedModel, observer: Observer | None = None, **options: Unpack[EngineOptions]
) -> LLMEngine:
    """A float32 CPU engine around a loaded model."""
    defaults = EngineOptions(dtype="float32", device="cpu")
    return LLMEngine(EngineConfig(**(defaults | options)), model, observer=observer)


def greedy(max_tokens: int, **changes: object) -> SamplingParams:
    """Greedy sampling that continues after an end-of-sequence token."""
    options: dict[str, object] = {"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True}
    return SamplingParams(**(options | changes))  # pyright: ignore[reportArgumentType]


def run(
    engine: LLMEngine,
    prompts: Sequence[list[int]],
    params: SamplingParams | Sequence[SamplingParams],
    *,
    after_step: Callable[[LLMEngine], None] = LLMEngine.check_invariants,
) -> list[RequestOutput]:
    """Serve some prompts together to the end, and call `after_step` after every step."""
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    for number, (prompt, one) in enumerate(zip(prompts, each, strict=True)):
        engine.add_request(str(number), prompt, one)
    finished = drain(engine, after_step=after_step)
    return [finished[str(number)] for number in range(len(prompts))]


def drain(
    engine: LLMEngine, *, after_step: Callable[[LLMEngine], None] = LLMEngine.check_invariants
) -> dict[str, RequestOutput]:
    """Step until nothing is unfinished."""
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                finished[output.request_id] = output
        after_step(engine)
    return finished


def assert_all_free(engine: LLMEngine) -> None:
    """Check that no request runs or waits, and that every block but the null block is free."""
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    num_null_blocks = 1 if engine.config.kv_layout == "paged" else 0
    assert stats.num_free_blocks == stats.num_blocks - num_null_blocks
    assert engine.memory_breakdown().free == num_slots(engine)
    assert stats.kv_cache_usage == 0.0
    engine.check_invariants()


def assert_greedy(oracle: Oracle, output: RequestOutput, num_tokens: int | None = None) -> None:
    """Check that each output token is the oracle's likeliest one, given the tokens before it."""
    tokens = output.outputs[0].token_ids
    if num_tokens is not None:
        assert len(tokens) == num_tokens
    logits = oracle.logits(output.prompt_token_ids + tokens)  # [T, vocab]
    predicting = logits[len(output.prompt_token_ids) - 1 : -1]  # [len(tokens), vocab]
    chosen = predicting.gather(1, torch.tensor(tokens)[:, None]).squeeze(1)  # [len(tokens)]
    gap = predicting.max(dim=1).values - chosen
    assert gap.max() <= TIE, (
        f"token {int(gap.argmax())} of {tokens} is {gap.max():.2e} below the oracle's best"
    )


def poison(engine: LLMEngine) -> None:
    """Fill every slot that no unfinished sequence has written with NaN, except in the null block.

    Cached blocks keep their contents. A sequence that reads a slot of another owner now gets NaN.
    """
    if engine.config.kv_layout == "none":
        return
    first_slot = engine.config.block_size if engine.config.kv_layout == "paged" else 0
    stale = sorted(set(range(first_slot, engine.kv_cache.slots.shape[2])) - _owned_slots(engine))
    engine.kv_cache.slots.index_fill_(2, torch.tensor(stale, dtype=torch.int64), float("nan"))


def _owned_slots(engine: LLMEngine) -> set[int]:
    size = engine.config.block_size
    owned: set[int] = set()
    for request in [*engine.scheduler.queues.running, *engine.scheduler.queues.waiting]:
        for seq in request.sequences:
            if seq.region is not None:
                owned.update(range(seq.region.start, seq.region.start + seq.num_computed_tokens))
            for i, block in enumerate(seq.block_table):
                in_block = min(size, seq.num_computed_tokens - i * size)
                owned.update(range(block * size, block * size + in_block))
    if engine.config.kv_layout == "paged":
        pending = {swap.block for swap in engine.scheduler._pending_swap_outs}
        for block in engine.manager.prefix_cache.block_ids() | pending:
            owned.update(range(block * size, (block + 1) * size))
    return owned


def num_slots(engine: LLMEngine) -> int:
    """Slots that sequences can have: all of the cache but those of the null block."""
    null = engine.config.block_size if engine.config.kv_layout == "paged" else 0
    return engine.kv_cache.slots.shape[2] - null


def check_and_poison(engine: LLMEngine) -> None:
    """Check all invariants, and poison the free slots: for use after every step."""
    engine.check_invariants()
    poison(engine)
