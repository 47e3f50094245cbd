"""The fields of a request's output: texts, reasons, log-probabilities, times."""

from __future__ import annotations

import pytest

from minipaged import LLM, LLMEngine, SamplingParams
from minipaged.errors import PromptError
from tests.engine.driving import drain, greedy, make_engine, run
from tests.model_pairs import Pair

PROMPT = [(5 * i) % 250 for i in range(12)]


@pytest.fixture
def engine(tiny: Pair) -> LLMEngine:
    return make_engine(tiny.model, num_blocks=100)


def decode(tiny: Pair, token_ids: list[int]) -> str:
    assert tiny.model.tokenizer is not None
    return tiny.model.tokenizer.decode(token_ids)


def test_text_is_the_decoded_tokens(engine: LLMEngine, tiny: Pair) -> None:
    [output] = run(engine, [PROMPT], SamplingParams(seed=1, max_tokens=60, ignore_eos=True))
    sample = output.outputs[0]
    assert sample.text == decode(tiny, sample.token_ids)
    assert (sample.finish_reason, sample.stop_reason) == ("length", None)


def test_streamed_text_only_grows(engine: LLMEngine, tiny: Pair) -> None:
    engine.add_request("a", PROMPT, SamplingParams(seed=2, max_tokens=60, ignore_eos=True))
    seen, token_ids = "", []
    while engine.has_unfinished_requests():
        [output] = engine.step()
        [sample] = output.outputs
        assert sample.text.startswith(seen)
        seen, token_ids = sample.text, sample.token_ids
    assert len(token_ids) == 60
    assert seen == decode(tiny, token_ids)


def reference_tokens(engine: LLMEngine, count: int) -> list[int]:
    [output] = run(engine, [PROMPT], greedy(count))
    return output.outputs[0].token_ids


def test_a_stop_token_ends_the_output(engine: LLMEngine, tiny: Pair) -> None:
    tokens = reference_tokens(engine, 20)
    stop = tokens[6]
    at = tokens.index(stop)
    [output] = run(engine, [PROMPT], greedy(20, stop_token_ids=[stop]))
    sample = output.outputs[0]
    assert (sample.finish_reason, sample.stop_reason) == ("stop", stop)
    assert sample.token_ids == tokens[: at + 1]
    assert sample.text == decode(tiny, tokens[:at])


def test_min_tokens_puts_a_stop_token_off(engine: LLMEngine) -> None:
    tokens = reference_tokens(engine, 20)
    [output] = run(engine, [PROMPT], greedy(20, stop_token_ids=[tokens[2]], min_tokens=10))
    assert len(output.outputs[0].token_ids) > 10
    assert tokens[2] not in output.outputs[0].token_ids[:10]


def test_end_of_sequence(tiny: Pair, engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    tokens = reference_tokens(engine, 20)
    config = dataclasses.replace(tiny.model.config, eos_token_ids=(tokens[6],))
    model = dataclasses.replace(tiny.model, config=config)
    ending = make_engine(model, num_blocks=100)
    params = SamplingParams(temperature=0, max_tokens=20)
    [output] = run(ending, [PROMPT], params)
    assert output.outputs[0].token_ids == tokens[: tokens.index(tokens[6]) + 1]
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", None)
    [output] = run(ending, [PROMPT], greedy(20))
    assert output.outputs[0].token_ids == tokens


@pytest.mark.parametrize("include", [True, False])
def test_a_stop_string_across_tokens(engine: LLMEngine, tiny: Pair, include: bool) -> None:
    [free] = run(engine, [PROMPT], SamplingParams(seed=3, max_tokens=40, ignore_eos=True))
    text = free.outputs[0].text
    # A token of the model "tiny" is one byte, so any three characters are several tokens.
    start = next(i for i in range(8, len(text) - 3) if "\ufffd" not in text[i : i + 3])
    stop = text[start : start + 3]
    at = text.index(stop)
    params = SamplingParams(
        seed=3, max_tokens=40, ignore_eos=True, stop=["never", stop], include_stop_str_in_output=include
    )
    [output] = run(engine, [PROMPT], params)
    sample = output.outputs[0]
    assert (sample.finish_reason, sample.stop_reason) == ("stop", stop)
    assert sample.text == text[: at + (3 if include else 0)]
    assert sample.token_ids == free.outputs[0].token_ids[: len(sample.token_ids)]


def test_text_held_back_for_a_stop_string_comes_out_at_the_end(engine: LLMEngine, tiny: Pair) -> None:
    [free] = run(engine, [PROMPT], SamplingParams(seed=3, max_tokens=20, ignore_eos=True))
    text = free.outputs[0].text
    params = SamplingParams(seed=3, max_tokens=20, ignore_eos=True, stop=text[-2:] + "never this")
    [output] = run(engine, [PROMPT], params)
    assert output.outputs[0].text == text


def test_logprobs(engine: LLMEngine, tiny: Pair) -> None:
    [output] = run(engine, [PROMPT], SamplingParams(seed=4, max_tokens=10, logprobs=3, ignore_eos=True))
    sample = output.outputs[0]
    expected = tiny.oracle.logprobs(PROMPT + sample.token_ids)[len(PROMPT) - 1 :]
    assert sample.logprobs is not None
    total = 0.0
    for row, token_id, found in zip(expected[:-1], sample.token_ids, sample.logprobs, strict=True):
        assert len(found) in (3, 4)
        assert set(row.topk(3).indices.tolist()) | {token_id} == found.keys()
        for candidate, entry in found.items():
            assert entry.logprob == pytest.approx(float(row[candidate]), abs=1e-4)
            assert entry.rank == 1 + int((row > row[candidate]).sum())
            assert entry.decoded_token == decode(tiny, [candidate])
        total += found[token_id].logprob
    assert sample.cumulative_logprob == pytest.approx(total)


def test_samples_are_distinct_repeatable_and_share_the_prompt(engine: LLMEngine) -> None:
    params = SamplingParams(n=5, seed=11, max_tokens=12, temperature=1.0, ignore_eos=True)
    [first] = run(engine, [PROMPT], params)
    prompt_tokens = engine.stats().prompt_tokens
    [second] = run(engine, [PROMPT], params)
    outputs = [tuple(sample.token_ids) for sample in first.outputs]
    assert [sample.index for sample in first.outputs] == [0, 1, 2, 3, 4]
    assert len(set(outputs)) == 5
    assert outputs == [tuple(sample.token_ids) for sample in second.outputs]
    assert prompt_tokens == len(PROMPT)
    # 12 tokens in blocks of 16: each sample but the last to write copies the prompt's block.
    assert engine.stats().num_copied_blocks == 2 * 4


def test_metrics_are_in_order(engine: LLMEngine) -> None:
    engine.add_request("a", PROMPT, greedy(3))
    [running] = engine.step()
    assert not running.finished
    assert running.metrics.finished_time is None
    output = drain(engine)["a"]
    times = output.metrics
    assert times.first_token_time is not None
    assert times.finished_time is not None
    assert times.arrival_time <= times.first_token_time <= times.finished_time


def test_chat_needs_a_template() -> None:
    llm = LLM("tiny", num_blocks=80, device="cpu")
    with pytest.raises(PromptError, match="chat template"):
        llm.chat([{"role": "user", "content": "hello"}])
    with pytest.raises(PromptError, match="message"):
        llm.chat([])


@pytest.mark.smollm2
def test_chat(smollm2: Pair) -> None:
    llm = LLM("smollm2-135m", max_model_len=256, num_blocks=60, device="cpu", dtype="float32")
    params = SamplingParams(temperature=0, max_tokens=12)
    [one] = llm.chat([{"role": "user", "content": "What is the capital of France?"}], params)
    assert "Paris" in one.outputs[0].text
    both = llm.chat(
        [
            [{"role": "user", "content": "What is the capital of France?"}],
            [{"role": "user", "content": "Hi"}],
        ],
        params,
    )
    assert both[0].outputs[0].token_ids == one.outputs[0].token_ids
    assert len(both) == 2
