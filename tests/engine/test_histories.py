"""Random histories of an engine: after every event, in any order, all bookkeeping agrees."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from minipaged import BeamSearchParams, LLMEngine, SamplingParams
from minipaged.baseline.buddy import next_power_of_two
from minipaged.choices import KVLayoutName, PreemptionMode
from minipaged.engine.intake import TokensPrompt
from minipaged.errors import PromptError, SamplingParamsError
from minipaged.events import Observer
from minipaged.loading.loader import LoadedModel
from minipaged.options import EngineOptions
from tests.engine.driving import assert_all_free, check_and_poison, make_engine, num_slots
from tests.long_tests import examples

NUM_HISTORIES = 1000


def random_engine(model: LoadedModel, rng: random.Random, observer: Observer | None = None) -> LLMEngine:
    block_size = rng.choice([1, 2, 4, 8])
    max_model_len = rng.choice([8, 16, 24])
    options = EngineOptions(
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_batched_tokens=rng.choice([1, 3, 8, 64]),
        max_num_seqs=rng.choice([4, 16]),
        scheduling_policy=rng.choice(["fcfs", "priority", "shortest"]),
        batching=rng.choice(["continuous", "continuous", "static"]),
    )
    layout: KVLayoutName = rng.choice(["paged", "paged", "paged", "contiguous", "contiguous", "none"])
    spare_blocks = rng.choice([0, 0, 1, 3, 40])
    if layout == "paged":
        options |= {"num_blocks": 1 + -(-max_model_len // block_size) + spare_blocks}
        return make_engine(model, observer, **(options | paged_options(rng)))
    # The smallest pool whose largest region holds a request, even if regions are powers of two.
    options |= {
        "kv_layout": layout,
        "num_blocks": next_power_of_two(max_model_len) // block_size + spare_blocks,
    }
    options["preemption_mode"] = rng.choice(["recompute", "never"])
    if layout == "contiguous":
        options["reserve"] = rng.choice(["max", "pow2", "oracle"])
        options["region_allocator"] = rng.choice(["first_fit", "buddy"])
    return make_engine(model, observer, **options)


def paged_options(rng: random.Random) -> EngineOptions:
    mode: PreemptionMode = rng.choice(["recompute", "recompute", "swap", "swap", "never"])
    copies = mode != "swap" and rng.random() < 0.3
    return EngineOptions(
        enable_prefix_caching=not copies and rng.random() < 0.7,
        fork_mode="copy" if copies else "share",
        preemption_mode=mode,
        num_cpu_blocks=rng.choice([None, 0, 2, 5]) if mode == "swap" else None,
    )


def add_random_request(engine: LLMEngine, rng: random.Random, request_id: str) -> None:
    length = rng.randint(1, engine.max_model_len)
    # Few different tokens, so that prefixes are shared often.
    prompt = TokensPrompt(prompt_token_ids=[rng.randint(0, 1) for _ in range(length)])
    if rng.random() < 0.2:
        prompt["cache_salt"] = rng.choice(["a", "b"])
    width, max_tokens = rng.choice([1, 1, 1, 2, 3]), rng.randint(1, 8)
    params = SamplingParams(n=width, temperature=1.5, max_tokens=max_tokens, ignore_eos=True)
    if width > 1 and rng.random() < 0.4:
        params = BeamSearchParams(beam_width=width, max_tokens=max_tokens)
    priority = rng.randint(0, 3) if engine.config.scheduling_policy == "priority" else 0
    try:
        engine.add_request(request_id, prompt, params, priority)
    except (PromptError, SamplingParamsError):
        assert length == engine.max_model_len or width > 1


def step(engine: LLMEngine) -> None:
    """Check that no sequence read another's slots: those hold NaN, and NaN ends a request with an error."""
    for output in engine.step():
        assert all(sample.finish_reason != "abort" for sample in output.outputs), output


def fail_one_step(engine: LLMEngine) -> None:
    """Stands for a forward pass that runs out of memory."""

    def fail(output: object) -> None:
        raise MemoryError("none left")

    if not engine.has_unfinished_requests():
        return
    before = engine.unfinished_request_ids()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._runner, "execute", fail)
        with pytest.raises(MemoryError):
            engine.step()
    assert engine.unfinished_request_ids() == before


def check(engine: LLMEngine) -> None:
    check_and_poison(engine)
    assert engine.memory_breakdown().num_slots == num_slots(engine)
    if engine.config.preemption_mode == "never" or engine.config.kv_layout != "paged":
        assert not engine.scheduler.queues.swapped


def live_one_history(
    model: LoadedModel,
    seed: int,
    observer: Observer | None = None,
    after_event: Callable[[LLMEngine], None] = check,
) -> LLMEngine:
    """A random history of a random engine, until no request is left. `after_event` looks at the engine."""
    rng = random.Random(seed)
    engine = random_engine(model, rng, observer)
    num_added = num_disturbed = 0
    for _ in range(rng.randint(3, 14)):
        event = rng.random()
        if event < 0.4:
            add_random_request(engine, rng, str(num_added))
            num_added += 1
        elif event < 0.78:
            step(engine)
        elif event < 0.88:
            engine.abort_request(str(rng.randint(0, max(0, num_added - 1))))
        elif event < 0.92:
            engine.reset_prefix_cache()
        elif event < 0.95:
            fail_one_step(engine)
            num_disturbed += 1
        elif engine.scheduler.queues.running:
            engine.scheduler.preempt(rng.choice(engine.scheduler.queues.running))
            num_disturbed += 1
        after_event(engine)
    while engine.has_unfinished_requests():
        step(engine)
        after_event(engine)
    if num_disturbed == 0 and (
        engine.config.preemption_mode == "never" or engine.config.kv_layout != "paged"
    ):
        assert engine.stats().num_preemptions == 0
    return engine


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("first", range(0, NUM_HISTORIES, 250))
def test_the_books_balance_after_every_step(nano_model: LoadedModel, first: int) -> None:
    for seed in range(first, first + examples(250)):
        assert_all_free(live_one_history(nano_model, seed))
