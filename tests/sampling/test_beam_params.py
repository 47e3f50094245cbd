"""BeamSearchParams: which values are accepted, and which are refused."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from minipaged.errors import SamplingParamsError
from minipaged.sampling.beam_params import BeamSearchParams


def test_defaults_are_those_of_transformers() -> None:
    params = BeamSearchParams(beam_width=4, max_tokens=10)
    assert (params.length_penalty, params.early_stopping, params.ignore_eos) == (1.0, False, False)


def test_numbers_of_numpy_become_those_of_python() -> None:
    params = BeamSearchParams(int(np.int64(4)), np.int32(10), np.float32(0.5))  # pyright: ignore[reportArgumentType]
    assert type(params.max_tokens) is int
    assert type(params.length_penalty) is float
    assert hash(params) == hash(BeamSearchParams(4, 10, 0.5))


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_every_way_to_stop(early_stopping: object) -> None:
    params = BeamSearchParams(2, 5, early_stopping=early_stopping)  # pyright: ignore[reportArgumentType]
    assert params.early_stopping == early_stopping


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("beam_width", 0),
        ("beam_width", 65),
        ("beam_width", 2.0),
        ("beam_width", True),
        ("max_tokens", 0),
        ("max_tokens", None),
        ("length_penalty", math.nan),
        ("length_penalty", 10.5),
        ("length_penalty", "1"),
        ("ignore_eos", 1),
        ("early_stopping", "always"),
        ("early_stopping", 1),
        ("early_stopping", None),
    ],
)
def test_refused_with_the_name_of_the_field(field: str, value: object) -> None:
    options: dict[str, object] = {"beam_width": 4, "max_tokens": 10, field: value}
    with pytest.raises(SamplingParamsError, match=f"^{field}="):
        BeamSearchParams(**options)  # pyright: ignore[reportArgumentType]


def test_they_and_the_algorithm_need_no_torch() -> None:
    code = (
        "import sys, minipaged.sampling.beam_params, minipaged.sampling.beam_search\n"
        "import minipaged.kv.block_usage\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
