"""An argument by a name that does not exist is an error of ours, which says what was probably meant."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable

import pytest

from minipaged import LLM, BeamSearchParams, EngineConfig, SamplingParams
from minipaged.errors import ConfigError, MinipagedError, SamplingParamsError
from minipaged.parts import Parts

Make = Callable[..., object]


def changed(**values: object) -> SamplingParams:
    return dataclasses.replace(SamplingParams(), **values)  # pyright: ignore[reportArgumentType]


def beams(**values: object) -> BeamSearchParams:
    return BeamSearchParams(2, 3, **values)  # pyright: ignore[reportArgumentType]


def stage(**values: object) -> EngineConfig:
    return EngineConfig.at_stage(3, **values)  # pyright: ignore[reportArgumentType]


CASES: list[tuple[Make, str, str, type[MinipagedError]]] = [
    (SamplingParams, "temprature", r"temprature \(did you mean temperature\?\)", SamplingParamsError),
    (SamplingParams, "max_new_tokens", r"did you mean max_tokens\?", SamplingParamsError),
    (SamplingParams, "logit_bias", r"parameter: logit_bias\. There are n, temp", SamplingParamsError),
    (SamplingParams, "bad_words", "bad_words", SamplingParamsError),
    (changed, "topk", "top_k", SamplingParamsError),
    (beams, "n_beams", "n_beams", SamplingParamsError),
    (beams, "lenght_penalty", r"did you mean length_penalty\?", SamplingParamsError),
    (EngineConfig, "blok_size", r"no such option: blok_size \(did you mean block_size\?\)", ConfigError),
    (stage, "blok_size", "block_size", ConfigError),
    (LLM, "blok_size", "block_size", ConfigError),
    (Parts, "slot_maping", "slot_mapping", ConfigError),
]


@pytest.mark.parametrize(("make", "name", "message", "error"), CASES)
def test_an_unknown_name(make: Make, name: str, message: str, error: type[MinipagedError]) -> None:
    with pytest.raises(error, match=message):
        make(**{name: None})


def test_all_unknown_names_are_named() -> None:
    with pytest.raises(SamplingParamsError, match=r"topk \(did you mean top_k\?\), best_of\. There are"):
        SamplingParams(n=2, topk=3, best_of=4)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("value", [SamplingParams(n=2, stop="a"), BeamSearchParams(2, 3), EngineConfig()])
def test_they_are_still_plain_values(value: SamplingParams | BeamSearchParams | EngineConfig) -> None:
    assert value == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == dataclasses.replace(value)
    parameters = inspect.signature(type(value)).parameters
    assert list(parameters) == [field.name for field in dataclasses.fields(value)]
