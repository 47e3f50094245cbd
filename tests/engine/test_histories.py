"""Random histories of an engine: whatever happens in whatever order, the books balance."""

from __future__ import annotations

import random

import pytest

from minipaged import LLMEngine, SamplingParams
from minipaged.config import PreemptionMode
from minipaged.errors import PromptError, SamplingParamsError
from minipaged.model.loader import LoadedModel
from minipaged.prompts import TokensPrompt
from tests.engine.driving import assert_all_free, make_engine

NUM_HISTORIES = 1000


def random_engine(model: LoadedModel, rng: random.Random) -> LLMEngine:
    block_size = rng.choice([1, 2, 4, 8])
    max_model_len = rng.choice([8, 16, 24])
    mode: PreemptionMode = rng.choice(["recompute", "swap"])
    smallest = 1 + -(-max_model_len // block_size)
    return make_engine(
        model,
        block_size=block_size,
        max_model_len=max_model_len,
        num_blocks=smallest + rng.choice([0, 0, 1, 3, 40]),
        max_num_batched_tokens=rng.choice([1, 3, 8, 64]),
        max_num_seqs=rng.choice([4, 16]),
        enable_prefix_caching=rng.random() < 0.7,
        scheduling_policy=rng.choice(["fcfs", "priority", "shortest"]),
        preemption_mode=mode,
        num_cpu_blocks=rng.choice([None, 0, 2, 5]) if mode == "swap" else None,
    )


def add_random_request(engine: LLMEngine, rng: random.Random, request_id: str) -> None:
    length = rng.randint(1, engine.max_model_len)
    # Few different tokens, so that prefixes are shared often.
    prompt = TokensPrompt(prompt_token_ids=[rng.randint(0, 1) for _ in range(length)])
    if rng.random() < 0.2:
        prompt["cache_salt"] = rng.choice(["a", "b"])
    params = SamplingParams(
        n=rng.choice([1, 1, 1, 2, 3]), temperature=1.5, max_tokens=rng.randint(1, 8), ignore_eos=True
    )
    priority = rng.randint(0, 3) if engine.config.scheduling_policy == "priority" else 0
    try:
        engine.add_request(request_id, prompt, params, priority)
    except (PromptError, SamplingParamsError):
        assert length == engine.max_model_len or params.n > 1


def live_one_history(model: LoadedModel, seed: int) -> LLMEngine:
    rng = random.Random(seed)
    engine = random_engine(model, rng)
    num_added = 0
    for _ in range(rng.randint(3, 14)):
        event = rng.random()
        if event < 0.4:
            add_random_request(engine, rng, str(num_added))
            num_added += 1
        elif event < 0.8:
            engine.step()
        elif event < 0.9:
            engine.abort_request(str(rng.randint(0, max(0, num_added - 1))))
        elif event < 0.95:
            engine.reset_prefix_cache()
        elif engine.scheduler.running:
            engine.scheduler.preempt(rng.choice(engine.scheduler.running))
        engine.check_invariants()
    while engine.has_unfinished_requests():
        engine.step()
        engine.check_invariants()
    return engine


@pytest.mark.parametrize("first", range(0, NUM_HISTORIES, 250))
def test_the_books_balance_after_every_step(nano_model: LoadedModel, first: int) -> None:
    for seed in range(first, first + 250):
        assert_all_free(live_one_history(nano_model, seed))
