"""SamplingParams: defaults, normalisation, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.errors import MinipagedError, SamplingParamsError
from minipaged.sampling.params import MAX_LOGPROBS, MAX_N, SamplingParams


def make(**values: Any) -> SamplingParams:  # noqa: ANN401 (wrong types are the point)
    return SamplingParams(**values)


def test_defaults_are_vllms() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_k, params.top_p, params.min_p) == (1, 1.0, 0, 1.0, 0.0)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0)
    assert (params.seed, params.max_tokens, params.min_tokens) == (None, 16, 0)
    assert (params.stop, params.stop_token_ids) == ((), ())
    assert (params.include_stop_str_in_output, params.ignore_eos) == (False, False)
    assert (params.logprobs, params.prompt_logprobs) == (None, None)
    assert not params.greedy
    assert not params.has_penalties


BAD = [
    *[("n", value) for value in (0, -1, MAX_N + 1, 1.0, True, None, "2")],
    *[("temperature", value) for value in (-0.1, math.nan, math.inf, -math.inf, None, "1", True, 10**400)],
    *[("top_k", value) for value in (-2, 5.0, None, math.nan, False)],
    *[("top_p", value) for value in (0.0, -0.5, 1.0001, math.nan, math.inf, None)],
    *[("min_p", value) for value in (-0.01, 1.01, math.nan, -math.inf, "0")],
    *[("repetition_penalty", value) for value in (0.0, -1.0, math.nan, math.inf)],
    *[("presence_penalty", value) for value in (-2.01, 2.01, math.nan, math.inf)],
    *[("frequency_penalty", value) for value in (-2.01, 2.01, math.nan, -math.inf)],
    *[("seed", value) for value in (1.5, True, 2**64, -(2**63) - 1, "7", 10**400)],
    *[("max_tokens", value) for value in (0, -1, 1.5, True, math.inf)],
    *[("min_tokens", value) for value in (-1, 1.0, None, 17)],
    *[("stop", value) for value in ("", [""], ["a", ""], [1], 5, b"x", ("a", None), {"a"})],
    *[("include_stop_str_in_output", value) for value in (1, None, "yes")],
    *[("ignore_eos", value) for value in (0, None)],
    *[("logprobs", value) for value in (-1, MAX_LOGPROBS + 1, True, 1.0)],
    *[("prompt_logprobs", value) for value in (-1, MAX_LOGPROBS + 1, False)],
    *[("stop_token_ids", value) for value in (3, "12", [-1], [1.0], [True], [None])],
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_bad_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(SamplingParamsError) as caught:
        make(**{field: value})
    message = str(caught.value)
    assert message.startswith(field)
    assert "is not possible: " in message
    assert len(message) < 300


def test_message_tells_value_and_range() -> None:
    with pytest.raises(
        SamplingParamsError, match=r"^top_p=1\.5 is not possible: .* above 0 and at most 1 \(1: off\)$"
    ):
        SamplingParams(top_p=1.5)
    assert issubclass(SamplingParamsError, ValueError)
    assert issubclass(SamplingParamsError, MinipagedError)


@pytest.mark.parametrize(("field", "value"), [("seed", 10**5000), ("stop", [10**5000])], ids=["seed", "stop"])
def test_number_too_long_to_print_is_refused(field: str, value: object) -> None:
    with pytest.raises(SamplingParamsError, match=rf"^{field}=\(a very large number\) is not possible"):
        make(**{field: value})


def test_contradictions_are_refused() -> None:
    with pytest.raises(SamplingParamsError, match=r"n=2 .*temperature=0"):
        SamplingParams(n=2, temperature=0)
    with pytest.raises(SamplingParamsError, match=r"min_tokens=9 .*max_tokens=8"):
        SamplingParams(min_tokens=9, max_tokens=8)
    assert SamplingParams(min_tokens=900, max_tokens=None).min_tokens == 900
    assert SamplingParams(n=2, temperature=1e-9).n == 2


def test_borders_are_possible() -> None:
    params = SamplingParams(
        n=MAX_N,
        temperature=5e-324,
        top_k=-1,
        top_p=5e-324,
        min_p=1,
        repetition_penalty=5e-324,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=2**64 - 1,
        max_tokens=1,
        min_tokens=1,
        logprobs=0,
        prompt_logprobs=MAX_LOGPROBS,
    )
    assert (params.seed, params.min_p, params.logprobs) == (2**64 - 1, 1.0, 0)
    assert SamplingParams(seed=-(2**63)).seed == -(2**63)
    assert SamplingParams(temperature=0).greedy


def test_minus_one_is_no_seed_as_in_vllm() -> None:
    assert SamplingParams(seed=-1).seed is None


def test_stop_is_normalised() -> None:
    assert SamplingParams(stop="END").stop_strings == ("END",)
    assert SamplingParams(stop=["b", "a", "b"]).stop == ("b", "a")
    assert SamplingParams(stop=()).stop_strings == ()
    assert SamplingParams(stop_token_ids=[3, 1, 3]).stop_ids == (3, 1)
    # However it was written, it is the same value.
    assert SamplingParams(stop="END", temperature=1) == SamplingParams(stop=["END"])
    assert hash(SamplingParams(stop=["x"])) == hash(SamplingParams(stop="x"))


def test_callers_list_is_copied() -> None:
    stop = ["a"]
    params = SamplingParams(stop=stop)
    stop.append("b")
    assert params.stop_strings == ("a",)


def test_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        make().temperature = 0.5  # pyright: ignore[reportAttributeAccessIssue]


def test_numpy_numbers_become_pythons() -> None:
    params = make(max_tokens=np.int64(5), temperature=np.float32(0.5), stop_token_ids=[np.int32(7)])
    assert type(params.max_tokens) is int
    assert type(params.temperature) is float
    assert type(params.stop_ids[0]) is int
    with pytest.raises(SamplingParamsError, match="temperature"):
        make(temperature=np.float32("nan"))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text("ab", max_size=3),
    st.lists(st.integers(), max_size=2),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([name for name, _ in BAD]), SCALARS, max_size=4))
def test_made_or_refused_never_something_else(values: dict[str, object]) -> None:
    try:
        params = make(**values)
    except SamplingParamsError:
        return
    assert params == make(**{name: getattr(params, name) for name in params.__dataclass_fields__})


def test_does_not_import_torch() -> None:
    code = "import sys, minipaged.sampling.params, minipaged.sampling.uniform, minipaged.sampling.logprobs\n"
    found = subprocess.run(
        [sys.executable, "-c", code + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"
