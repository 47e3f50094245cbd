"""Workloads: the same seed gives the same requests, and prefixes are shared as asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minipaged.errors import ConfigError
from minipaged.sim.lengths import ALPACA, SHAREGPT
from minipaged.sim.workload import make_shared_prefix_workload, make_workload


def test_a_workload_is_reproducible() -> None:
    workload = make_workload(SHAREGPT, 20, 257, seed=3)
    assert workload == make_workload(SHAREGPT, 20, 257, seed=3)
    assert workload.requests != make_workload(SHAREGPT, 20, 257, seed=4).requests
    assert len(workload.requests) == 20
    assert workload.name == "like ShareGPT"


def test_token_ids_are_in_the_vocabulary_and_varied() -> None:
    workload = make_workload(SHAREGPT, 10, 7, seed=0)
    assert {t for request in workload.requests for t in request.prompt_token_ids} == set(range(7))


def test_totals() -> None:
    workload = make_workload(ALPACA, 30, 257, seed=0)
    assert workload.num_prompt_tokens == sum(len(r.prompt_token_ids) for r in workload.requests)
    assert workload.num_output_tokens == sum(r.max_tokens for r in workload.requests)
    assert (workload.num_prefix_tokens, workload.num_prefixes) == (0, 0)


@pytest.mark.parametrize(("num_prefix_tokens", "num_prefixes"), [(80, 1), (341, 1), (341, 3)])
def test_requests_share_their_prefix_and_nothing_else(num_prefix_tokens: int, num_prefixes: int) -> None:
    workload = make_shared_prefix_workload(
        ALPACA, 12, 50_000, seed=0, num_prefix_tokens=num_prefix_tokens, num_prefixes=num_prefixes
    )
    prompts = [request.prompt_token_ids for request in workload.requests]
    assert len({prompt[:num_prefix_tokens] for prompt in prompts}) == num_prefixes
    assert len({prompt[: num_prefix_tokens + 1] for prompt in prompts}) == 12
    assert [prompt[:num_prefix_tokens] for prompt in prompts[:num_prefixes]] * (12 // num_prefixes) == [
        prompt[:num_prefix_tokens] for prompt in prompts
    ]
    assert (workload.num_prefix_tokens, workload.num_prefixes) == (num_prefix_tokens, num_prefixes)
    assert workload == make_shared_prefix_workload(
        ALPACA, 12, 50_000, seed=0, num_prefix_tokens=num_prefix_tokens, num_prefixes=num_prefixes
    )


@pytest.mark.parametrize(("num_prefix_tokens", "num_prefixes"), [(0, 1), (4, 0), (-1, 1)])
def test_prefixes_of_nothing_are_refused(num_prefix_tokens: int, num_prefixes: int) -> None:
    with pytest.raises(ConfigError, match="at least 1 prefix of at least 1 token"):
        make_shared_prefix_workload(
            ALPACA, 2, 50, 0, num_prefix_tokens=num_prefix_tokens, num_prefixes=num_prefixes
        )


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed must be at least 0, not -1"):
        make_workload(ALPACA, 1, 50, -1)


def test_no_torch_is_needed() -> None:
    script = "import sys, minipaged.sim.workload; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
