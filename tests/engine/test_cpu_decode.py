"""Decode steps whose calls are written down: the same numbers as eager steps, whatever was there before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged import LLMEngine, SamplingParams
from minipaged.attention.paged import Located
from minipaged.attention.reference import reference_attention
from minipaged.config import EngineOptions
from minipaged.graphs import cpu_decode
from minipaged.graphs.cpu_decode import CpuDecode
from minipaged.kv.block_table import pad_block_tables, slot_mapping
from minipaged.kv.cache import write_kv
from minipaged.model.loader import LoadedModel, load_model
from minipaged.parts import Parts
from minipaged.step_batch import StepBatch
from tests.oracle import Oracle, make_model
from tests.torch_threads import torch_threads

from .conftest import Pair, load
from .driving import assert_all_free, assert_greedy, check_and_poison, drain, greedy, make_engine, run

Function = TypeVar("Function", bound=Callable[..., object])

PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1], [9, 9], [6, 2, 8, 3, 1]]
LENGTHS = [9, 7, 5, 3, 2]
"""Of the outputs: the batch shrinks from 5 sequences to 1."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers run in compiled code."""
    return make_model(tmp_path_factory.mktemp("models") / "packed", hidden_size=64, num_layers=3)


@pytest.fixture(scope="module")
def packed(folder: Path) -> Pair:
    return Pair(load(str(folder)), Oracle.from_folder(folder))


def make(pair: Pair, **options: object) -> LLMEngine:
    defaults: dict[str, object] = {"block_size": 4, "num_blocks": 60, "max_model_len": 64, "max_num_seqs": 8}
    return make_engine(pair.model, **EngineOptions(**(defaults | options)))  # pyright: ignore[reportArgumentType]


def steps_of(engine: LLMEngine) -> CpuDecode:
    steps = engine._runner._decode_steps
    assert isinstance(steps, CpuDecode)
    return steps


def sizes(engine: LLMEngine) -> set[int]:
    """Of the steps that have been written down."""
    return {num_rows for num_rows, _ in steps_of(engine)._written_down}


@torch.inference_mode()
def spoil(engine: LLMEngine) -> None:
    """After a step: NaN wherever nobody's numbers are, and another step's inputs."""
    check_and_poison(engine)
    steps = steps_of(engine)
    for kept in (steps._hidden, steps._cos, steps._sin, steps._heads, steps._attended):
        kept.fill_(float("nan"))
    steps._inputs.slot_mapping.fill_(0)
    steps._inputs.seq_lens.fill_(31)
    steps._inputs.block_tables.fill_(10**6)
    for each in steps._groups[1:]:
        each.fill_(3)


def test_greedy_tokens_while_the_batch_shrinks(packed: Pair) -> None:
    engine = make(packed)
    outputs = run(engine, PROMPTS, [greedy(length) for length in LENGTHS], after_step=spoil)
    for output, length in zip(outputs, LENGTHS, strict=True):
        assert_greedy(packed.oracle, output, length)
    assert_all_free(engine)
    assert sizes(engine) == {5, 4, 3, 2, 1}


def numbers(engine: LLMEngine, prompts: list[list[int]], params: list[SamplingParams]) -> list[object]:
    """All that is known of the outputs, log-probabilities to the last bit."""
    return [
        [(sample.token_ids, sample.logprobs) for sample in output.outputs]
        for output in run(engine, prompts, params, after_step=check_and_poison)
    ]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_as_eager_to_the_last_bit(packed: Pair, folder: Path, data: st.DataObject) -> None:
    """Prompts that share blocks, samples that fork, chunks of prompts between decodes, a pool that is short,
    any number of threads: the numbers are those of an engine that does each step eagerly."""
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
    pair = packed
    if data.draw(st.booleans()):
        options["dtype"] = "bfloat16"
        model = load_model(str(folder), dtype=torch.bfloat16, device=torch.device("cpu"))
        pair = Pair(model, packed.oracle)
    with torch_threads(data.draw(st.sampled_from([1, 2, 3]))), pytest.MonkeyPatch.context() as patch:
        patch.setattr("minipaged.cpu.threads.WORTH_THREADS", 1e-3)
        expected = numbers(make(pair, enforce_eager=True, **options), prompts, params)
        assert numbers(make(pair, **options), prompts, params) == expected


def test_another_number_of_threads_from_one_step_to_the_next(
    packed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minipaged.cpu.threads.WORTH_THREADS", 1e-3)
    engine = make(packed)
    engine.add_request("0", PROMPTS[0], greedy(12))
    for count in (1, 2, 3, 1, 2):
        with torch_threads(count):
            engine.step()
            spoil(engine)
    (output,) = drain(engine).values()
    assert_greedy(packed.oracle, output, 12)


def test_larger_steps_are_eager(packed: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_decode, "MOST_ROWS", 2)
    engine = make(packed)
    for output in run(engine, PROMPTS, [greedy(length) for length in LENGTHS]):
        assert_greedy(packed.oracle, output)
    assert sizes(engine) == {2, 1}


def test_steps_that_are_no_decodes_are_eager(packed: Pair) -> None:
    engine = make(packed, max_num_batched_tokens=4, max_num_seqs=4)
    engine.add_request("a", PROMPTS[1], greedy(5))
    engine.step()
    assert not sizes(engine)
    engine.step()
    assert sizes(engine) == {1}
    engine.add_request("b", PROMPTS[0], greedy(1))
    outputs = drain(engine, after_step=spoil)
    for output in outputs.values():
        assert_greedy(packed.oracle, output)
    assert sizes(engine) == {1}


@pytest.mark.parametrize("length", [13, 14, 16])
def test_a_request_of_the_greatest_length(packed: Pair, length: int) -> None:
    """The last block of its table has one token, or is full."""
    engine = make(packed, max_model_len=length)
    (output,) = run(engine, [PROMPTS[0]], greedy(length - 8), after_step=spoil)
    assert_greedy(packed.oracle, output, length - 8)


def test_prefixes_that_are_read_together(packed: Pair) -> None:
    """Of sequences whose neighbours in the batch begin with other blocks."""
    beginnings = [[(3 * i + k) % 250 for i in range(70)] for k in range(3)]
    prompts = [[*beginnings[i % 3], i, 2 * i] for i in range(9)]
    engine = make(packed, num_blocks=300, max_model_len=100, max_num_seqs=9)
    for beginning in beginnings:  # so that all find its blocks
        run(engine, [beginning], greedy(1))
    for output in run(engine, prompts, greedy(6), after_step=spoil):
        assert_greedy(packed.oracle, output, 6)
    assert 9 in sizes(engine)


def mislocate(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch, change: Callable[[Located], Located]
) -> None:
    """From now on sequences are believed to be elsewhere."""
    layout = engine._runner._layout
    located = layout.locate

    def locate(batch: StepBatch) -> Located:
        right = located(batch)
        assert isinstance(right, Located)
        return change(right)

    monkeypatch.setattr(layout, "locate", locate)


def test_table_that_is_too_short(packed: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it in the buffers is an older step's, whose blocks there are."""
    engine = make(packed)
    engine.add_request("0", PROMPTS[0], greedy(5))
    engine.step()
    mislocate(engine, monkeypatch, lambda right: right._replace(block_tables=right.block_tables[:, :-1]))
    with pytest.raises(IndexError, match="too short"):
        engine.step()


def test_heads_that_the_loops_of_attention_are_not_made_for(tmp_path: Path) -> None:
    """The layers are compiled, attention is not."""
    folder = make_model(tmp_path / "narrow", hidden_size=64, head_dim=16)
    engine = make(Pair(load(str(folder)), Oracle.from_folder(folder)))
    assert engine.model.decoder.faster_layers
    assert engine._runner._decode_steps is None
    for output in run(engine, PROMPTS, greedy(3)):
        assert len(output.outputs[0].token_ids) == 3


@torch.inference_mode()
def test_the_thread_of_the_first_step_may_end(packed: Pair) -> None:
    """Python drops what is that thread's own. Calls are given addresses: none of them is there."""
    engine = make(packed)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run, engine, PROMPTS[:1], greedy(3)).result()
    assert sizes(engine) == {1}
    steps = steps_of(engine)
    *of_layers, norm = steps._written_down[1, torch.get_num_threads()].arguments
    assert {each.x for each in of_layers[::4]} == {steps._room.x_address} == {steps._room._x.data_ptr()}
    assert norm.x == steps._hidden.data_ptr()
    for output in run(engine, PROMPTS[:1], greedy(9), after_step=spoil):
        assert_greedy(packed.oracle, output)


def test_a_default_device_is_not_asked(packed: Pair) -> None:
    with torch.device("meta"):
        engine = make(packed)
    engine.add_request("0", PROMPTS[0], greedy(4))
    with torch.device("meta"):
        engine.step()
        engine.step()
    (output,) = drain(engine, after_step=spoil).values()
    assert_greedy(packed.oracle, output, 4)
    assert sizes(engine) == {1}


def test_two_engines_in_two_threads_with_one_model(packed: Pair) -> None:
    """What each writes between its calls is its own."""

    def serve(prompt: list[int]) -> list[int]:
        (output,) = run(make(packed), [prompt], greedy(40))
        return list(output.outputs[0].token_ids)

    prompts = [PROMPTS[0], PROMPTS[4]]
    expected = [serve(prompt) for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(serve, prompts * 4)) == expected * 4


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("slot_mapping", 240, "slot 240 of token 0 is not one of the cache's 240"),
        ("slot_mapping", -1, "slot -1 of token 0"),
        ("block_tables", 60, "a block that is not one of the 60"),
        ("block_tables", -5, "a block that is not one of the 60"),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_wrong_places_are_refused(
    packed: Pair, monkeypatch: pytest.MonkeyPatch, field: str, wrong: int, message: str, eager: bool
) -> None:
    engine = make(packed, enforce_eager=eager)
    engine.add_request("0", PROMPTS[0], greedy(5))
    engine.step()
    mislocate(
        engine,
        monkeypatch,
        lambda right: right._replace(**{field: np.full_like(getattr(right, field), wrong)}),
    )
    with pytest.raises(IndexError, match=message):
        engine.step()
    monkeypatch.undo()
    (output,) = drain(engine, after_step=check_and_poison).values()  # what was wrong is forgotten
    assert_greedy(packed.oracle, output, 5)


def their(function: Function) -> Function:
    """A reader's part, which does the same as ours."""

    @wraps(function)
    def part(*arguments: object) -> object:
        return function(*arguments)

    return cast(Function, part)


@pytest.mark.parametrize(
    "options",
    [
        {"enforce_eager": True},
        {"attention_backend": "reference"},
        {"kv_layout": "contiguous"},
        {"kv_layout": "none"},
        {"parts": Parts(slot_mapping=their(slot_mapping))},
        {"parts": Parts(pad_block_tables=their(pad_block_tables))},
        {"parts": Parts(write_kv=their(write_kv))},
        {"parts": Parts(attention=their(reference_attention))},
    ],
)
def test_who_has_none(packed: Pair, options: dict[str, object]) -> None:
    """Settings that say so, and readers' own parts, which are called in each layer as they expect."""
    assert make(packed, **options)._runner._decode_steps is None


def test_a_model_whose_layers_are_not_compiled_has_none(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, num_blocks=9, max_model_len="auto")
    assert engine._runner._decode_steps is None
