"""Engines do not affect each other, requests do not affect each other, and no memory is left behind."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

from minipaged import LLM, LLMEngine, SamplingParams
from minipaged.choices import HashAlgorithm
from minipaged.engine.output_processor import OutputProcessor
from minipaged.loading.loader import LoadedModel
from minipaged.sampling.sampler import SampledToken, SamplingRow
from minipaged.transfer import Queued
from tests.engine.driving import assert_all_free, assert_greedy, drain, greedy, make_engine, run
from tests.model_pairs import Pair

PROMPTS = [[(7 * i + n) % 250 for i in range(10 + 7 * n)] for n in range(4)]


def add_all(engine: LLMEngine) -> None:
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, greedy(10))


def test_two_engines_step_by_step(random_models: dict[str, Pair]) -> None:
    pairs = [random_models["llama-gqa"], random_models["qwen3-gqa"], random_models["llama-gqa"]]
    algorithms: list[HashAlgorithm] = ["sha256", "xxhash_cbor", "sha256_cbor"]
    engines = [
        make_engine(
            pair.model,
            block_size=size,
            num_blocks=300 // size,
            max_model_len=64,
            prefix_caching_hash_algo=algo,
        )
        for pair, size, algo in zip(pairs, [4, 16, 1], algorithms, strict=True)
    ]
    for engine in engines:
        add_all(engine)
    while any(engine.has_unfinished_requests() for engine in engines):
        for engine, pair in zip(engines, pairs, strict=True):
            for output in engine.step():
                if output.finished:
                    assert_greedy(pair.oracle, output, 10)
            engine.check_invariants()
    assert all(engine.stats().generation_tokens == 40 for engine in engines)


def test_a_seeded_request_does_not_depend_on_its_neighbours(tiny: Pair) -> None:
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=20, n=2)
    alone = make_engine(tiny.model, num_blocks=80, seed=1)
    alone.add_request("seeded", PROMPTS[1], params)
    expected = drain(alone)["seeded"]
    crowded = make_engine(tiny.model, num_blocks=80, seed=2)
    add_all(crowded)
    crowded.step()
    crowded.add_request("seeded", PROMPTS[1], params)
    got = drain(crowded)["seeded"]
    assert [s.token_ids for s in got.outputs] == [s.token_ids for s in expected.outputs]
    assert got.outputs[0].token_ids != got.outputs[1].token_ids


def test_the_engine_seed_repeats_everything(tiny: Pair) -> None:
    def texts(seed: int) -> list[list[int]]:
        engine = make_engine(tiny.model, num_blocks=80, seed=seed)
        return [o.outputs[0].token_ids for o in run(engine, PROMPTS, SamplingParams(max_tokens=12))]

    assert texts(0) == texts(0)
    assert texts(0) != texts(1)


def test_abort_frees_everything_at_any_moment(tiny: Pair) -> None:
    for num_steps in range(8):
        engine = make_engine(
            tiny.model, block_size=4, num_blocks=70, max_num_batched_tokens=9, max_model_len=64
        )
        add_all(engine)
        engine.add_request("group", PROMPTS[2], SamplingParams(n=3, max_tokens=9))
        for _ in range(num_steps):
            engine.step()
        for request_id in ["group", "1"]:
            output = engine.abort_request(request_id)
            assert output is not None
            assert {sample.finish_reason for sample in output.outputs} == {"abort"}
            engine.check_invariants()
        assert engine.abort_request("1") is None
        finished = drain(engine)
        assert sorted(finished) == ["0", "2", "3"]
        for output in finished.values():
            assert_greedy(tiny.oracle, output, 10)
        assert_all_free(engine)


def test_a_detokeniser_fault_ends_its_request_alone(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    add_all(engine)
    engine.step()
    processor = engine._processors["2"]
    assert isinstance(processor, OutputProcessor)
    detokenizer = processor._samples[0].detokenizer
    assert detokenizer is not None

    def fail(token_id: int) -> str:
        raise RuntimeError("no such character")

    monkeypatch.setattr(detokenizer, "append", fail)
    finished = drain(engine)
    assert finished["2"].outputs[0].finish_reason == "abort"
    assert finished["2"].outputs[0].stop_reason == "RuntimeError: no such character"
    for request_id in "013":
        assert_greedy(tiny.oracle, finished[request_id], 10)
    assert_all_free(engine)


def test_logits_that_are_nan_end_their_request_alone(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(tiny.model, num_blocks=80)
    add_all(engine)
    engine.step()
    import minipaged.runner.model_runner as runner

    def queue_samples(logits: torch.Tensor, rows: list[SamplingRow]) -> Queued[list[SampledToken]]:
        logits[1] = float("nan")
        return original(logits, rows)

    original = runner.queue_samples
    monkeypatch.setattr(runner, "queue_samples", queue_samples)
    engine.step()
    monkeypatch.setattr(runner, "queue_samples", original)
    finished = drain(engine)
    assert sorted(finished) == ["0", "2", "3"]
    assert all(output.outputs[0].finish_reason == "length" for output in finished.values())
    assert_all_free(engine)


@pytest.mark.parametrize("fault", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_after_a_failed_step_the_engine_goes_on(
    tiny: Pair, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    engine = make_engine(tiny.model, block_size=4, num_blocks=100, max_model_len=64)
    add_all(engine)
    engine.step()
    engine.add_request("late", PROMPTS[3] + [1] * 9, greedy(10))
    decoder = engine._runner._decoder

    def fail(*_: object) -> torch.Tensor:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(decoder, "forward", fail)
        with pytest.raises(type(fault)):
            engine.step()
    engine.check_invariants()
    finished = drain(engine)
    assert len(finished) == 5
    for output in finished.values():
        assert_greedy(tiny.oracle, output, 10)


def test_an_interrupted_generate_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    advance = llm.engine.advance
    calls = iter(range(100))

    def interrupted() -> object:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return advance()

    monkeypatch.setattr(llm.engine, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b", "c"], SamplingParams(max_tokens=50, ignore_eos=True))
    assert_all_free(llm.engine)
    assert len(llm.generate(["a"], SamplingParams(max_tokens=2))) == 1


@pytest.mark.long
def test_ten_thousand_requests_leave_no_memory_behind(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, block_size=4, num_blocks=200, max_model_len=32)

    def serve(first: int, count: int) -> None:
        for number in range(first, first + count):
            engine.add_request(str(number), [number % 31, number % 7, 3], SamplingParams(max_tokens=2))
            if number % 50 == 49:
                drain(engine, after_step=lambda _: None)

    serve(0, 1_000)
    gc.collect()
    before = sys.getallocatedblocks()
    serve(1_000, 9_000)
    gc.collect()
    growth = sys.getallocatedblocks() - before
    assert growth < 1_000, f"{growth:,} Python objects more after 9,000 requests"
    assert_all_free(engine)
