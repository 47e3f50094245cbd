"""The outputs of a beam search (texts, blocks, copies, the saving by sharing), and refused searches."""

from __future__ import annotations

import pytest
import torch

from minipaged import LLM, BeamSearchOutput, BeamSearchParams, SamplingParams
from minipaged.errors import EngineBusyError, PromptError, RequestTooLargeError, SamplingParamsError
from minipaged.loading.loader import LoadedModel
from tests.engine.beams import (
    assert_hypotheses,
    assert_sequences,
    transformers_beam_search,
)
from tests.engine.driving import assert_all_free, assert_greedy, check_and_poison, drain, greedy, make_engine
from tests.model_pairs import Pair

PROMPT = [(11 * i + 3) % 250 for i in range(13)]
TEXTS = ["Once upon a time", "The little dog was"]


@pytest.mark.smollm2
@pytest.mark.parametrize("width", [2, 4, 6])
def test_smollm2(smollm2: Pair, width: int) -> None:
    """Texts and scores are those of transformers. The last prompt ends with an end-of-sequence token."""
    tokenizer = smollm2.model.tokenizer
    assert tokenizer is not None
    prompts = [
        tokenizer.encode("The capital of France is"),
        tokenizer.encode("def fibonacci(n):\n"),
        tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}]),
    ]
    params = BeamSearchParams(width, 12)
    engine = make_engine(smollm2.model, num_blocks=60, max_model_len=128)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)
    finished = drain(engine, after_step=check_and_poison)
    assert_all_free(engine)
    eos = smollm2.model.config.eos_token_ids
    for number, prompt in enumerate(prompts):
        output = finished[str(number)]
        expected = transformers_beam_search(smollm2.oracle, prompt, params, eos)
        assert_hypotheses(output, expected)
        texts = {tokenizer.decode(hypothesis.token_ids) for hypothesis in expected}
        assert {sample.text for sample in output.outputs} == texts
    assert finished["2"].outputs[0].finish_reason == "stop"
    assert "Paris" in finished["2"].outputs[0].text


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", num_blocks=120, max_model_len=100, device="cpu", dtype="float32", block_size=4)


def test_texts_and_scores_of_several_prompts(llm: LLM, tiny: Pair) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=10)
    outputs = llm.beam_search(TEXTS, params)
    assert len(outputs) == len(TEXTS)
    tokenizer = tiny.model.tokenizer
    assert tokenizer is not None
    for text, output in zip(TEXTS, outputs, strict=True):
        assert isinstance(output, BeamSearchOutput)
        prompt = tokenizer.encode(text)
        assert output.prompt_token_ids == prompt
        eos = tiny.model.config.eos_token_ids
        assert_sequences(output, transformers_beam_search(tiny.oracle, prompt, params, eos))
        for sequence in output.sequences:
            assert sequence.text == tokenizer.decode(sequence.tokens)
            assert sequence.text.startswith(text)
        assert output.metrics.finished_time is not None
    assert_all_free(llm.engine)


def test_the_sum_behind_a_score(llm: LLM, tiny: Pair) -> None:
    [output] = llm.beam_search([PROMPT], BeamSearchParams(3, 8, length_penalty=0.5))
    for sequence in output.sequences:
        made = sequence.tokens[len(PROMPT) :]
        logprobs = tiny.oracle.logprobs(sequence.tokens)[len(PROMPT) - 1 : -1]  # [len(made), vocab]
        total = float(logprobs.gather(1, torch.tensor(made)[:, None]).sum())
        assert sequence.cum_logprob == pytest.approx(total, abs=1e-4)
        assert sequence.score == pytest.approx(total / len(made) ** 0.5, abs=1e-4)


def test_a_model_without_a_tokenizer(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, num_blocks=200, block_size=4)
    engine.add_request("0", [1, 2, 3], BeamSearchParams(3, 5))
    output = drain(engine)["0"]
    assert [sample.text for sample in output.outputs] == ["", "", ""]
    assert engine.stats().generation_tokens == sum(len(sample.token_ids) for sample in output.outputs)


def test_nothing_is_reported_before_the_end(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, num_blocks=200, block_size=4)
    engine.add_request("0", [1, 2, 3], BeamSearchParams(3, 5, ignore_eos=True))
    assert [len(engine.step()) for _ in range(5)] == [0, 0, 0, 0, 1]
    assert_all_free(engine)


def test_blocks_copies_and_saving(random_models: dict[str, Pair]) -> None:
    """A prompt of three full blocks and one token.

    All beams share the full blocks. Each beam but one copies the last block. Never more than one block at a
    time is copied for a beam.
    """
    engine = make_engine(random_models["llama-gqa"].model, block_size=4, num_blocks=100)
    engine.add_request("0", PROMPT, BeamSearchParams(4, 2, ignore_eos=True))
    usage = drain(engine, after_step=check_and_poison)["0"].block_usage
    # The prompt has 4 blocks. Then four beams have 4 table entries each, and the first 3 are the same.
    assert usage.num_copied_blocks == 3
    assert usage.peak_blocks == 3 + 4
    assert (usage.logical_blocks, usage.physical_blocks) == (4 + 16, 4 + 7)
    assert usage.sharing_saving == pytest.approx(9 / 20)
    stats = engine.stats()
    assert (stats.num_copied_blocks, stats.sharing_saving) == (3, pytest.approx(9 / 20))


def test_the_saving_of_parallel_sampling(random_models: dict[str, Pair]) -> None:
    engine = make_engine(random_models["llama-gqa"].model, block_size=4, num_blocks=100)
    params = SamplingParams(n=4, seed=1, max_tokens=2, ignore_eos=True)
    engine.add_request("0", PROMPT, params)
    usage = drain(engine, after_step=check_and_poison)["0"].block_usage
    assert (usage.num_copied_blocks, usage.peak_blocks) == (3, 7)
    assert usage.sharing_saving == pytest.approx(9 / 20)


def test_beams_share_more_than_samples_do(random_models: dict[str, Pair]) -> None:
    """Beams diverge again in each step, so their common prefix grows (paper, Fig. 15)."""
    savings = []
    for params in (
        BeamSearchParams(6, 40, ignore_eos=True),
        SamplingParams(n=6, seed=1, max_tokens=40, ignore_eos=True),
    ):
        engine = make_engine(random_models["llama-gqa"].model, block_size=4, num_blocks=200)
        engine.add_request("0", PROMPT, params)
        savings.append(drain(engine)["0"].block_usage.sharing_saving)
    assert savings[0] > savings[1] + 0.1


def test_one_sequence_saves_nothing_and_a_shared_prefix_counts_for_the_engine(
    random_models: dict[str, Pair],
) -> None:
    engine = make_engine(random_models["llama-gqa"].model, block_size=4, num_blocks=100)
    engine.add_request("0", PROMPT, greedy(6))
    engine.step()
    engine.add_request("1", PROMPT, greedy(6))
    outputs = drain(engine)
    assert [outputs[key].block_usage.sharing_saving for key in "01"] == [0.0, 0.0]
    assert engine.stats().sharing_saving > 0.2


def test_logits_that_are_nan_end_the_search_alone(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(tiny.model, num_blocks=120, block_size=4, max_model_len=100)
    decoder = engine._runner._decoder
    compute_logits = decoder.logits
    num_calls = 0

    def broken(hidden: torch.Tensor) -> torch.Tensor:
        nonlocal num_calls
        num_calls += 1
        logits = compute_logits(hidden)
        if num_calls == 3:
            logits[2] = float("nan")  # of the greedy request's row and three beams', the second beam's
        return logits

    monkeypatch.setattr(decoder, "logits", broken)
    engine.add_request("beams", PROMPT, BeamSearchParams(3, 10))
    engine.add_request("greedy", PROMPT, greedy(10))
    finished = drain(engine, after_step=check_and_poison)
    monkeypatch.undo()
    broken_search = finished["beams"]
    assert {sample.finish_reason for sample in broken_search.outputs} == {"abort"}
    assert "NaN" in str(broken_search.outputs[0].stop_reason)
    assert_greedy(tiny.oracle, finished["greedy"], 10)
    assert_all_free(engine)


def test_a_fault_in_its_text_ends_the_search_alone(tiny: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny.model.tokenizer
    assert tokenizer is not None
    engine = make_engine(tiny.model, num_blocks=120, block_size=4, max_model_len=100)
    engine.add_request("beams", PROMPT, BeamSearchParams(3, 4, ignore_eos=True))
    engine.add_request("greedy", PROMPT, greedy(10))
    decode = type(tokenizer).decode
    faults = {"left": 1}

    def faulty(self: object, token_ids: object, skip_special_tokens: bool = True) -> str:
        if engine.stats().num_steps == 4 and faults["left"]:
            faults["left"] -= 1
            raise RuntimeError("no such text")
        return decode(tokenizer, token_ids, skip_special_tokens)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(type(tokenizer), "decode", faulty)
    finished = drain(engine)
    assert faults["left"] == 0
    assert {sample.finish_reason for sample in finished["beams"].outputs} == {"abort"}
    assert finished["beams"].outputs[0].stop_reason == "RuntimeError: no such text"
    assert_greedy(tiny.oracle, finished["greedy"], 10)
    assert_all_free(engine)


def test_more_beams_than_sequences_may_run(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, num_blocks=200, max_num_seqs=3)
    with pytest.raises(SamplingParamsError, match="4 beams run together, but max_num_seqs is 3"):
        engine.add_request("0", [1], BeamSearchParams(4, 5))
    assert not engine.has_unfinished_requests()


def test_beams_that_can_never_fit_together(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, block_size=4, num_blocks=9, max_model_len=32)
    with pytest.raises(RequestTooLargeError, match=r"4 beams .* can need 17 blocks of 4"):
        engine.add_request("0", [1, 2, 3, 4, 5], BeamSearchParams(4, 16))


def test_output_ends_at_max_model_len(nano_model: LoadedModel) -> None:
    engine = make_engine(nano_model, block_size=4, num_blocks=50, max_model_len=10)
    engine.add_request("0", [1, 2, 3], BeamSearchParams(3, 100, ignore_eos=True))
    output = drain(engine)["0"]
    assert [(len(s.token_ids), s.finish_reason) for s in output.outputs] == [(7, "length")] * 3


def test_a_failed_or_busy_call_leaves_nothing(llm: LLM) -> None:
    with pytest.raises(PromptError, match="prompt 1"):
        llm.beam_search(["fine", ""], BeamSearchParams(2, 4))
    with pytest.raises(SamplingParamsError, match="BeamSearchParams"):
        llm.beam_search(["fine"], "wide")  # pyright: ignore[reportArgumentType]
    llm.engine.add_request("mine", "fine", greedy(3))
    with pytest.raises(EngineBusyError):
        llm.beam_search(["fine"], BeamSearchParams(2, 4))
    llm.engine.abort_request("mine")
    assert_all_free(llm.engine)
