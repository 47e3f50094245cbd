"""The memory breakdown of a running engine, compared with a mark on each slot."""

from __future__ import annotations

import random

import pytest

from minipaged import LLM, BeamSearchParams, LLMEngine, MemoryBreakdown, SamplingParams
from minipaged.errors import RequestTooLargeError
from minipaged.loading.loader import LoadedModel
from tests.engine.driving import greedy, make_engine, run
from tests.long_tests import examples


def marked(engine: LLMEngine) -> MemoryBreakdown:
    """Mark each slot of the pool, and count the marks. If sequences disagree, the best mark counts."""
    size = engine.config.block_size
    best = ("free", "never", "later", "token")
    marks = dict.fromkeys(range(size, engine.manager.pool.num_blocks * size), "free")
    for request in engine.scheduler.queues.running:
        end = len(request.prompt_token_ids) + request.max_tokens - 1
        for seq in request.unfinished:
            blocks = list(seq.block_table)
            for position in range(len(blocks) * size):
                is_token, is_later = position < seq.num_computed_tokens, position < end
                mark = "token" if is_token else "later" if is_later else "never"
                slot = blocks[position // size] * size + position % size
                marks[slot] = max(marks[slot], mark, key=best.index)
    count = list(marks.values()).count
    return MemoryBreakdown(count("token"), count("later"), count("never"), 0, count("free"))


def live(model: LoadedModel, seed: int) -> list[MemoryBreakdown]:
    """A random run under memory pressure; the breakdown after every step."""
    rng = random.Random(seed)
    block_size = rng.choice([1, 3, 4, 8])
    engine = make_engine(
        model,
        block_size=block_size,
        max_model_len=24,
        num_blocks=1 + -(-24 // block_size) + rng.choice([0, 2, 30]),
        max_num_batched_tokens=rng.choice([1, 5, 64]),
        enable_prefix_caching=rng.random() < 0.7,
        preemption_mode=rng.choice(["recompute", "swap"]),
    )
    for number in range(rng.randint(2, 8)):
        prompt = [rng.randint(0, 1) for _ in range(rng.randint(1, 16))]
        width, max_tokens, ignore_eos = rng.choice([1, 1, 2, 4]), rng.randint(1, 8), rng.random() < 0.5
        params = SamplingParams(n=width, max_tokens=max_tokens, ignore_eos=ignore_eos)
        if rng.random() < 0.3:
            params = BeamSearchParams(beam_width=width, max_tokens=max_tokens, ignore_eos=ignore_eos)
        try:
            engine.add_request(str(number), prompt, params)
        except RequestTooLargeError:
            assert width > 1
    found = []
    while engine.has_unfinished_requests():
        engine.step()
        now = engine.memory_breakdown()
        assert now == marked(engine)
        assert now.num_slots == (engine.manager.pool.num_blocks - 1) * block_size
        found.append(now)
        if rng.random() < 0.05:
            engine.abort_request(str(rng.randint(0, 7)))
            assert engine.memory_breakdown() == marked(engine)
    assert engine.memory_breakdown().free == engine.memory_breakdown().num_slots
    return found


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("first", [0, 100])
def test_it_adds_up_to_the_pool_after_every_step(nano_model: LoadedModel, first: int) -> None:
    seen = [each for seed in range(first, first + examples(100)) for each in live(nano_model, seed)]
    # The run was hard enough: each kind of slot occurred.
    assert all(
        any(getattr(each, kind) for each in seen) for kind in ("reservation", "internal_fragmentation")
    )
    assert any(each.free == 0 for each in seen)


def test_one_request_from_beginning_to_end(nano_model: LoadedModel) -> None:
    """8 blocks of 4, 5 prompt tokens and 6 output tokens. The last output token is never computed."""
    engine = make_engine(nano_model, block_size=4, num_blocks=9, max_model_len=16)
    found: list[MemoryBreakdown] = [engine.memory_breakdown()]
    run(engine, [[1, 2, 3, 4, 5]], greedy(6), after_step=lambda e: found.append(e.memory_breakdown()))
    assert found == [
        MemoryBreakdown(0, 0, 0, 0, 32),
        MemoryBreakdown(5, 3, 0, 0, 24),
        MemoryBreakdown(6, 2, 0, 0, 24),
        MemoryBreakdown(7, 1, 0, 0, 24),
        MemoryBreakdown(8, 0, 0, 0, 24),
        MemoryBreakdown(9, 1, 2, 0, 20),
        MemoryBreakdown(0, 0, 0, 0, 32),
    ]


def test_an_llm_at_rest_is_free() -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    llm.generate("Once upon a time", SamplingParams(max_tokens=20))
    assert llm.memory_breakdown() == MemoryBreakdown(0, 0, 0, 0, 79 * 16)
