"""Special tokens in the text and as stop strings. `stop=["<|im_end|>"]` must work or be refused.

In the model here, the full stop is a special token.
"""

from __future__ import annotations

import dataclasses

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from minipaged import LLMEngine, SamplingParams
from minipaged.engine.outputs import CompletionOutput
from minipaged.errors import SamplingParamsError
from minipaged.loading.locations import TINY_FOLDER
from minipaged.model.tokenizer import Tokenizer
from tests.engine.driving import assert_all_free, drain, greedy, make_engine
from tests.model_pairs import Pair

PROMPT = "Once upon a time"
LENGTH = 60


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    backend = Backend.from_file(str(TINY_FOLDER / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(".", special=True, normalized=False)])
    return Tokenizer.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>"))


@pytest.fixture
def engine(tiny: Pair, tokenizer: Tokenizer) -> LLMEngine:
    return make_engine(dataclasses.replace(tiny.model, tokenizer=tokenizer), num_blocks=80)


def sample(engine: LLMEngine, params: SamplingParams) -> CompletionOutput:
    engine.add_request("0", PROMPT, params)
    output = drain(engine)["0"]
    assert_all_free(engine)
    return output.outputs[0]


def test_which_tokens_are_special(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_token_ids == {"<|endoftext|>": 0, ".": tokenizer.encode(".")[0]}


@pytest.mark.parametrize("skip", [True, False])
def test_the_text_is_that_of_the_tokenizer(engine: LLMEngine, tokenizer: Tokenizer, skip: bool) -> None:
    found = sample(engine, greedy(LENGTH, skip_special_tokens=skip))
    assert len(found.token_ids) == LENGTH
    assert found.text == tokenizer.decode(found.token_ids, skip_special_tokens=skip)
    assert ("." in found.text) is not skip


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_a_special_token_as_a_stop_string(
    engine: LLMEngine, tokenizer: Tokenizer, skip: bool, include: bool
) -> None:
    tokens = sample(engine, greedy(LENGTH)).token_ids
    (stop,) = tokenizer.encode(".")
    until = tokens[: tokens.index(stop) + 1]
    for stops in ([".", "never"], "."):
        params = greedy(LENGTH, stop=stops, skip_special_tokens=skip, include_stop_str_in_output=include)
        found = sample(engine, params)
        assert (found.finish_reason, found.stop_reason) == ("stop", ".")
        assert found.token_ids == until
        assert found.text == tokenizer.decode(until[:-1]) + ("." if include else "")


@pytest.mark.parametrize("skip", [True, False])
def test_it_does_not_count_below_min_tokens(engine: LLMEngine, tokenizer: Tokenizer, skip: bool) -> None:
    tokens = sample(engine, greedy(LENGTH)).token_ids
    (stop,) = tokenizer.encode(".")
    first = tokens.index(stop)
    later = tokens.index(stop, first + 1)
    found = sample(engine, greedy(LENGTH, stop=["."], min_tokens=first + 1, skip_special_tokens=skip))
    assert found.token_ids == tokens[: later + 1]


def test_text_held_back_for_another_stop_string_comes_before_it(
    engine: LLMEngine, tokenizer: Tokenizer
) -> None:
    tokens = sample(engine, greedy(LENGTH)).token_ids
    before = tokenizer.decode(tokens[: tokens.index(tokenizer.encode(".")[0])])
    stops = [".", before[-3:] + "never this"]
    found = sample(engine, greedy(LENGTH, stop=stops, include_stop_str_in_output=True))
    assert found.text == before + "."


def test_a_special_token_within_a_stop_string(engine: LLMEngine, tokenizer: Tokenizer) -> None:
    """It is refused if the text can never contain it, and found if the text does."""
    whole = sample(engine, greedy(LENGTH, skip_special_tokens=False)).text
    at = whole.index(".")
    stop = whole[at : at + 3]
    with pytest.raises(
        SamplingParamsError, match=r"special token '\.'.*stop='\.'.*skip_special_tokens=False"
    ):
        engine.add_request("0", PROMPT, greedy(LENGTH, stop=["fine", stop]))
    assert not engine.has_unfinished_requests()
    found = sample(engine, greedy(LENGTH, stop=["fine", stop], skip_special_tokens=False))
    assert (found.stop_reason, found.text) == (stop, whole[:at])


def test_the_end_of_a_text_shows_where_it_is_asked_for(tiny: Pair, tokenizer: Tokenizer) -> None:
    """As a stop token, it is in the text only if stop tokens are included and special tokens are shown."""
    (stop,) = tokenizer.encode(".")
    config = dataclasses.replace(tiny.model.config, eos_token_ids=(stop,))
    ending = make_engine(dataclasses.replace(tiny.model, tokenizer=tokenizer, config=config), num_blocks=80)
    for skip, include, shown in ((True, True, False), (False, True, True), (False, False, False)):
        params = SamplingParams(
            temperature=0, max_tokens=LENGTH, skip_special_tokens=skip, include_stop_str_in_output=include
        )
        found = sample(ending, params)
        assert (found.finish_reason, found.stop_reason, found.token_ids[-1]) == ("stop", None, stop)
        assert found.text.endswith(".") is shown


def test_each_sample_ends_by_itself(engine: LLMEngine, tokenizer: Tokenizer) -> None:
    (stop,) = tokenizer.encode(".")
    engine.add_request("0", PROMPT, SamplingParams(n=4, seed=5, max_tokens=LENGTH, stop=".", ignore_eos=True))
    for found in drain(engine)["0"].outputs:
        assert (found.stop_reason == ".") == (found.token_ids[-1] == stop)
        assert stop not in found.token_ids[:-1]
