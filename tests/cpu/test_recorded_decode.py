"""Recorded decode steps give the same numbers as eager steps, whatever earlier steps left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged import LLMEngine, SamplingParams
from minipaged.cpu import recorded_decode
from minipaged.loading.loader import load_model
from tests.cpu.recorded import PROMPTS, make, sizes, spoil, steps_of
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, drain, greedy, run
from tests.long_tests import examples
from tests.model_pairs import Pair
from tests.oracle import make_model
from tests.torch_threads import torch_threads

LENGTHS = [9, 7, 5, 3, 2]
"""Lengths of the outputs. The batch shrinks from 5 sequences to 1."""


def test_greedy_tokens_while_the_batch_shrinks(compilable: Pair) -> None:
    engine = make(compilable)
    outputs = run(engine, PROMPTS, [greedy(length) for length in LENGTHS], after_step=spoil)
    for output, length in zip(outputs, LENGTHS, strict=True):
        assert_greedy(compilable.oracle, output, length)
    assert_all_free(engine)
    assert sizes(engine) == {5, 4, 3, 2, 1}


def numbers(engine: LLMEngine, prompts: list[list[int]], params: list[SamplingParams]) -> list[object]:
    """All fields of the outputs, with log-probabilities to the last bit."""
    return [
        [(sample.token_ids, sample.logprobs) for sample in output.outputs]
        for output in run(engine, prompts, params, after_step=check_and_poison)
    ]


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_as_eager_to_the_last_bit(compilable: Pair, compilable_folder: Path, data: st.DataObject) -> None:
    """The numbers are those of an engine that runs each step eagerly.

    This holds for prompts that share blocks, samples that fork, chunks of prompts between decodes, a small
    pool, and any number of threads.
    """
    common = data.draw(st.lists(st.integers(0, 250), max_size=14))
    prompts, params = [], []
    for _ in range(data.draw(st.integers(1, 6))):
        own = data.draw(st.lists(st.integers(0, 250), min_size=1, max_size=9))
        prompts.append([*common, *own] if data.draw(st.booleans()) else own)
        num_tokens, n = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([1, 1, 1, 2]))
        params.append(SamplingParams(temperature=0.9, seed=3, n=n, max_tokens=num_tokens, logprobs=2))
    options: dict[str, object] = {
        "num_blocks": data.draw(st.integers(18, 60)),
        "max_num_batched_tokens": data.draw(st.sampled_from([8, 64])),
    }
    pair = compilable
    if data.draw(st.booleans()):
        options["dtype"] = "bfloat16"
        model = load_model(str(compilable_folder), dtype=torch.bfloat16, device=torch.device("cpu"))
        pair = Pair(model, compilable.oracle)
    with torch_threads(data.draw(st.sampled_from([1, 2, 3]))), pytest.MonkeyPatch.context() as patch:
        patch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
        expected = numbers(make(pair, enforce_eager=True, **options), prompts, params)
        assert numbers(make(pair, **options), prompts, params) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sequence_in_company_is_as_alone(compilable: Pair, tmp_path: Path, dtype: str) -> None:
    """Equal to the last bit, although many rows take another path than one row (`cpu/products/panels.py`).

    All matrices of this model are in panels, including that of the logits.
    """
    folder = make_model(tmp_path / "whole", hidden_size=64, num_layers=3, vocab_size=256)
    model = load_model(str(folder), dtype=getattr(torch, dtype), device=torch.device("cpu"))
    pair = Pair(model, compilable.oracle)
    options: dict[str, object] = {"dtype": dtype, "num_blocks": 200}
    prompts = [[(7 * i + k) % 250 for k in range(3 + i % 5)] for i in range(30)]
    params = [SamplingParams(temperature=0, max_tokens=6, logprobs=2) for _ in prompts]
    together = make(pair, max_num_seqs=30, **options)
    found = numbers(together, prompts, params)
    assert 30 in sizes(together)
    alone = make(pair, **options)
    assert found == [numbers(alone, [prompt], [one])[0] for prompt, one in zip(prompts, params, strict=True)]


def test_another_number_of_threads_from_one_step_to_the_next(
    compilable: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minipaged.cpu.compiler.threads.WORTH_THREADS", 1e-3)
    engine = make(compilable)
    engine.add_request("0", PROMPTS[0], greedy(12))
    for count in (1, 2, 3, 1, 2):
        with torch_threads(count):
            engine.step()
            spoil(engine)
    (output,) = drain(engine).values()
    assert_greedy(compilable.oracle, output, 12)


def test_larger_steps_are_eager(compilable: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_decode, "MOST_ROWS", 2)
    engine = make(compilable)
    for output in run(engine, PROMPTS, [greedy(length) for length in LENGTHS]):
        assert_greedy(compilable.oracle, output)
    assert sizes(engine) == {2, 1}


def test_steps_that_are_no_decodes_are_eager(compilable: Pair) -> None:
    engine = make(compilable, max_num_batched_tokens=4, max_num_seqs=4)
    engine.add_request("a", PROMPTS[1], greedy(5))
    engine.step()
    assert not sizes(engine)
    engine.step()
    assert sizes(engine) == {1}
    engine.add_request("b", PROMPTS[0], greedy(1))
    outputs = drain(engine, after_step=spoil)
    for output in outputs.values():
        assert_greedy(compilable.oracle, output)
    assert sizes(engine) == {1}


@pytest.mark.parametrize("length", [13, 14, 16])
def test_a_request_of_the_greatest_length(compilable: Pair, length: int) -> None:
    """The last block of the table has one token, or is full."""
    engine = make(compilable, max_model_len=length)
    (output,) = run(engine, [PROMPTS[0]], greedy(length - 8), after_step=spoil)
    assert_greedy(compilable.oracle, output, length - 8)


@pytest.mark.parametrize("common", [8, 70])
def test_prefixes_that_are_read_together(compilable: Pair, common: int) -> None:
    """Sequences with common first blocks that are not neighbours in the batch.

    Some of them differ within attention's first chunk, and some after it.
    """
    beginnings = [[(3 * i + k) % 250 for i in range(common)] for k in range(3)]
    prompts = [[*beginnings[i % 3], *(5 * i * k % 250 for k in range(80 - common))] for i in range(9)]
    engine = make(compilable, num_blocks=300, max_model_len=100, max_num_seqs=9)
    for beginning in beginnings:  # so that all later requests find its blocks
        run(engine, [beginning], greedy(1))
    for output in run(engine, prompts, greedy(6), after_step=spoil):
        assert_greedy(compilable.oracle, output, 6)
    assert 9 in sizes(engine)


@torch.inference_mode()
def test_the_thread_of_the_first_step_may_end(compilable: Pair) -> None:
    """Python frees a thread's local memory when the thread ends. The recorded calls must not use its
    addresses."""
    engine = make(compilable)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run, engine, PROMPTS[:1], greedy(3)).result()
    assert sizes(engine) == {1}
    steps = steps_of(engine)
    *of_layers, norm = steps._recorded[1, torch.get_num_threads()].arguments
    assert (
        {each.x for each in of_layers[::4]}
        == {steps._workspace.x_address}
        == {steps._workspace._x.data_ptr()}
    )
    assert norm.x == steps._hidden.data_ptr()
    for output in run(engine, PROMPTS[:1], greedy(9), after_step=spoil):
        assert_greedy(compilable.oracle, output)


def test_a_default_device_is_not_asked(compilable: Pair) -> None:
    with torch.device("meta"):
        engine = make(compilable)
    engine.add_request("0", PROMPTS[0], greedy(4))
    with torch.device("meta"):
        engine.step()
        engine.step()
    (output,) = drain(engine, after_step=spoil).values()
    assert_greedy(compilable.oracle, output, 4)
    assert sizes(engine) == {1}


def test_two_engines_in_two_threads_with_one_model(compilable: Pair) -> None:
    """Each engine has its own intermediate results."""

    def serve(prompt: list[int]) -> list[int]:
        (output,) = run(make(compilable), [prompt], greedy(40))
        return list(output.outputs[0].token_ids)

    prompts = [PROMPTS[0], PROMPTS[4]]
    expected = [serve(prompt) for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(serve, prompts * 4)) == expected * 4
