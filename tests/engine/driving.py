"""Making engines, driving them, and holding what they say against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch

from minipaged import EngineConfig, LLMEngine, RequestOutput, SamplingParams
from minipaged.config import EngineOptions
from minipaged.model.loader import LoadedModel
from tests.oracle import Oracle

TIE = 1e-4
"""Where the oracle's two best logits are within this of each other, either is right."""


def make_engine(model: LoadedModel, **options: Unpack[EngineOptions]) -> LLMEngine:
    """A float32 CPU engine around a loaded model."""
    defaults = EngineOptions(dtype="float32", device="cpu")
    return LLMEngine(EngineConfig(**(defaults | options)), model)


def greedy(max_tokens: int, **changes: object) -> SamplingParams:
    """Greedy sampling that goes on after an end of sequence."""
    options: dict[str, object] = {"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True}
    return SamplingParams(**(options | changes))  # pyright: ignore[reportArgumentType]


def run(
    engine: LLMEngine,
    prompts: Sequence[list[int]],
    params: SamplingParams | Sequence[SamplingParams],
    *,
    after_step: Callable[[LLMEngine], None] = LLMEngine.check_invariants,
) -> list[RequestOutput]:
    """Serve some prompts together to the end, and look at the engine after every step."""
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
    """Nothing runs, nothing waits, and every block but the null block is free."""
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_free_blocks == stats.num_blocks - 1
    assert stats.kv_cache_usage == 0.0
    engine.check_invariants()


def assert_greedy(oracle: Oracle, output: RequestOutput, num_tokens: int | None = None) -> None:
    """Each output token is the oracle's most likely one, given those before it."""
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

    Cached blocks keep their contents. Whatever reads a slot that it does not own shows it now.
    """
    size = engine.config.block_size
    owned: set[int] = set()
    for request in [*engine.scheduler.running, *engine.scheduler.waiting]:
        for seq in request.sequences:
            for i, block in enumerate(seq.block_table):
                in_block = min(size, seq.num_computed_tokens - i * size)
                owned.update(range(block * size, block * size + in_block))
    pending = {swap.block for swap in engine.scheduler.pending_swap_outs}
    for block in engine.manager.prefix_cache.block_ids() | pending:
        owned.update(range(block * size, (block + 1) * size))
    num_slots = engine.manager.pool.num_blocks * size
    stale = torch.tensor(sorted(set(range(size, num_slots)) - owned), dtype=torch.int64)
    for layer in engine.kv_cache.layers:
        layer.flatten(1, 2).index_fill_(1, stale, float("nan"))


def check_and_poison(engine: LLMEngine) -> None:
    """What a demanding test does after every step."""
    engine.check_invariants()
    poison(engine)
