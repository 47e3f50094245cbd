"""Requests at and beyond every limit: the outcome is as documented, and the engine continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minipaged import LLM, LLMEngine, SamplingParams
from minipaged.engine.intake import TextPrompt, TokensPrompt
from minipaged.errors import (
    ConfigError,
    PromptError,
    RequestIdError,
    RequestTooLargeError,
    SamplingParamsError,
)
from tests.engine.driving import assert_all_free, assert_greedy, drain, greedy, make_engine, run
from tests.model_pairs import Pair

MAX_LEN = 64


@pytest.fixture
def engine(tiny: Pair) -> LLMEngine:
    return make_engine(tiny.model, block_size=4, num_blocks=40, max_model_len=MAX_LEN)


def assert_still_works(engine: LLMEngine, tiny: Pair) -> None:
    assert_all_free(engine)
    [output] = run(engine, [[1, 2, 3]], greedy(5))
    assert_greedy(tiny.oracle, output, 5)
    assert_all_free(engine)


def test_the_longest_prompt_gives_one_token(engine: LLMEngine, tiny: Pair) -> None:
    [output] = run(engine, [[7] * (MAX_LEN - 1)], greedy(10))
    assert_greedy(tiny.oracle, output, 1)
    assert output.outputs[0].finish_reason == "length"


def test_output_ends_at_max_model_len(engine: LLMEngine) -> None:
    [output] = run(engine, [[7] * 60], greedy(100))
    assert len(output.outputs[0].token_ids) == 4
    [output] = run(engine, [[7] * 60], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 4


@pytest.mark.parametrize("length", [MAX_LEN, MAX_LEN + 1, 10 * MAX_LEN])
def test_a_prompt_without_room_for_a_token(engine: LLMEngine, tiny: Pair, length: int) -> None:
    with pytest.raises(RequestTooLargeError, match=f"{length}.*{MAX_LEN}"):
        engine.add_request("a", [7] * length, greedy(1))
    assert_still_works(engine, tiny)


BAD_PROMPTS: dict[str, tuple[object, str]] = {
    "empty text": ("", "empty"),
    "no tokens": ([], "empty"),
    "empty tokens in a dict": ({"prompt_token_ids": []}, "empty"),
    "id too large": ([1, 2048], "position 1"),
    "huge id": ([2**70], "position 0"),
    "negative id": ([-1], "position 0"),
    "float id": ([1.0], "integers"),
    "bool id": ([True], "integers"),
    "text id": (["a"], "integers"),
    "nested": ([[1]], "integers"),
    "None": (None, "string"),
    "number": (3, "string"),
    "bytes": (b"abc", "string"),
    "surrogate": ("\ud800", "surrogate"),
    "a megabyte": ("a" * 1_000_000, "characters"),
    "dict without a prompt": ({}, "either"),
    "dict with both": ({"prompt": "a", "prompt_token_ids": [1]}, "either"),
    "dict with text for ids": ({"prompt_token_ids": "abc"}, "list"),
    "dict with ids for text": ({"prompt": [1]}, "string"),
    "dict with a typo": ({"promt": "a"}, "promt"),
    "empty salt": ({"prompt": "a", "cache_salt": ""}, "cache_salt"),
    "salt of another type": ({"prompt": "a", "cache_salt": 3}, "cache_salt"),
    "surrogate salt": ({"prompt": "a", "cache_salt": "\udc00"}, "UTF-8"),
    "priority under fcfs": ({"prompt": "a", "priority": 1}, "scheduling_policy"),
    "priority of another type": ({"prompt": "a", "priority": "high"}, "priority"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_bad_prompts_are_refused_when_added(engine: LLMEngine, tiny: Pair, name: str) -> None:
    prompt, message = BAD_PROMPTS[name]
    with pytest.raises(PromptError, match=message):
        engine.add_request("a", prompt, greedy(1))  # pyright: ignore[reportArgumentType]
    assert not engine.has_unfinished_requests()
    assert_still_works(engine, tiny)


@pytest.mark.parametrize("request_id", ["", None, 3])
def test_bad_request_ids(engine: LLMEngine, request_id: object) -> None:
    with pytest.raises(RequestIdError):
        engine.add_request(request_id, [1], greedy(1))  # pyright: ignore[reportArgumentType]


def test_a_request_id_is_unique_while_unfinished(engine: LLMEngine) -> None:
    engine.add_request("a", [1], greedy(1))
    with pytest.raises(RequestIdError, match="'a'"):
        engine.add_request("a", [1], greedy(1))
    drain(engine)
    engine.add_request("a", [1], greedy(1))
    assert list(drain(engine)) == ["a"]


BAD_PARAMS: dict[str, Callable[[], object]] = {
    "max_tokens 0": lambda: SamplingParams(max_tokens=0),
    "negative temperature": lambda: SamplingParams(temperature=-0.1),
    "NaN temperature": lambda: SamplingParams(temperature=float("nan")),
    "NaN top_p": lambda: SamplingParams(top_p=float("nan")),
    "contradiction": lambda: SamplingParams(max_tokens=2, min_tokens=3),
    "greedy samples": lambda: SamplingParams(temperature=0, n=2),
}


@pytest.mark.parametrize("name", BAD_PARAMS)
def test_bad_params_are_refused_when_made(name: str) -> None:
    with pytest.raises(SamplingParamsError):
        BAD_PARAMS[name]()


@pytest.mark.parametrize(
    "params",
    [SamplingParams(stop_token_ids=[2048]), SamplingParams(n=64), "greedy", {"temperature": 0}],
)
def test_params_that_this_engine_cannot_serve(tiny: Pair, params: object) -> None:
    engine = make_engine(tiny.model, num_blocks=70, max_num_seqs=8)
    with pytest.raises(SamplingParamsError):
        engine.add_request("a", [1], params)  # pyright: ignore[reportArgumentType]
    assert_all_free(engine)


def test_samples_that_can_never_fit_together(engine: LLMEngine, tiny: Pair) -> None:
    with pytest.raises(RequestTooLargeError, match="39"):
        engine.add_request("a", [1] * 8, SamplingParams(n=30, max_tokens=8))
    assert_still_works(engine, tiny)


@pytest.mark.parametrize("max_tokens", [1, 2])
def test_max_tokens(engine: LLMEngine, max_tokens: int) -> None:
    [output] = run(engine, [[1, 2]], greedy(max_tokens))
    assert len(output.outputs[0].token_ids) == max_tokens
    assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 1}, "null block"),
        ({"num_blocks": 2}, "4 tokens"),
        ({"num_blocks": 16}, "max_model_len=60"),
        ({"kv_cache_memory_bytes": 1}, "null block"),
        ({"max_model_len": 1025}, "1,024"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"block_size": 0}, "block_size"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 32}, "chunked"),
        ({"device": "warp"}, "device"),
        ({"device": "cuda:99"}, "cuda"),
        ({"scheduling_policy": "lifo"}, "fcfs"),
        ({"prefix_caching_hash_algo": "md5"}, "sha256"),
        ({"seed": 0.5}, "seed"),
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization"),
    ],
)
def test_bad_settings_are_refused_at_start(tiny: Pair, options: dict[str, object], message: str) -> None:
    settings = {"block_size": 4, "max_model_len": MAX_LEN} | options
    with pytest.raises(ConfigError, match=message):
        make_engine(tiny.model, **settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("auto", ["auto", -1])
def test_the_longest_max_model_len_that_fits(tiny: Pair, auto: int | str) -> None:
    engine = make_engine(tiny.model, block_size=4, num_blocks=9, max_model_len=auto)  # pyright: ignore[reportArgumentType]
    assert engine.max_model_len == 32
    [output] = run(engine, [[1] * 31], greedy(1))
    assert_greedy(tiny.oracle, output, 1)


def test_one_bad_prompt_among_many_runs_nothing() -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    with pytest.raises(PromptError, match="prompt 1"):
        llm.generate(["fine", "", "fine too"])
    assert not llm.engine.has_unfinished_requests()
    with pytest.raises(PromptError, match="one for each"):
        llm.generate(["a", "b"], [SamplingParams()])
    assert len(llm.generate(["fine"], SamplingParams(max_tokens=3))) == 1
    assert llm.generate([]) == []


def test_all_forms_of_a_prompt_are_the_same_prompt() -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    ids = llm.engine.model.tokenizer.encode("abc")  # pyright: ignore[reportOptionalMemberAccess]
    forms = ["abc", ids, TextPrompt(prompt="abc"), TokensPrompt(prompt_token_ids=ids)]
    outputs = llm.generate(forms, SamplingParams(temperature=0, max_tokens=4))
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert [output.prompt for output in outputs] == ["abc", None, "abc", None]
    assert all(output.prompt_token_ids == ids for output in outputs)


def test_a_model_without_a_tokenizer(random_models: dict[str, Pair]) -> None:
    engine = make_engine(random_models["llama-gqa"].model, num_blocks=40)
    [output] = run(engine, [[1, 2]], greedy(3))
    assert output.outputs[0].text == ""
    with pytest.raises(PromptError, match="tokenizer"):
        engine.add_request("a", "text", greedy(1))
    with pytest.raises(SamplingParamsError, match="tokenizer"):
        engine.add_request("a", [1], SamplingParams(stop="x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 10**12}, "bytes"),
        ({"num_blocks": 2**63}, "bytes"),
        ({"kv_cache_memory_bytes": 10**15}, "bytes"),
        ({"block_size": 2**64, "num_blocks": 2}, "at most 1,048,576"),
        ({"num_blocks": 80, "preemption_mode": "swap", "num_cpu_blocks": 10**12}, "bytes"),
        ({"enable_prefix_caching": "False"}, "True or False"),
        ({"enable_chunked_prefill": None}, "True or False"),
        ({"enforce_eager": 1}, "enforce_eager must be True or False, not 1"),
        ({"seed": 2**64}, "64-bit"),
    ],
)
def test_settings_that_no_machine_can_serve(tiny: Pair, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_engine(tiny.model, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("params", [5, {"temperature": 0}, [SamplingParams(), 3], SamplingParams])
def test_params_of_another_kind(params: object) -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    with pytest.raises(SamplingParamsError):
        llm.generate(["a", "b"], params)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SamplingParamsError):
        llm.beam_search("a", params)  # pyright: ignore[reportArgumentType]
    assert_all_free(llm.engine)
