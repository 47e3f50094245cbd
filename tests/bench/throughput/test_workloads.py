"""The workloads: their sizes, their reproducibility, and the refusal of models that cannot serve them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged.bench.throughput.workloads import WORKLOAD_NAMES, longest_request, make_workload
from minipaged.errors import ConfigError
from minipaged.loading.folder import read_config
from minipaged.loading.locations import TINY_FOLDER

TINY = read_config(TINY_FOLDER)
LARGE = replace(TINY, vocab_size=49_152, max_position_embeddings=8192)


def test_sizes() -> None:
    w1, w2, w3 = (make_workload(name, LARGE) for name in WORKLOAD_NAMES)
    assert (len(w1.requests), w1.num_prompt_tokens, w1.num_output_tokens) == (1, 128, 128)
    assert len(w2.requests) == 32
    lengths = [len(each.prompt_token_ids) for each in w2.requests] + [each.max_tokens for each in w2.requests]
    assert min(lengths) >= 16
    assert max(lengths) <= 256
    assert len(set(lengths)) > 16
    assert (len(w3.requests), w3.num_prompt_tokens, w3.num_output_tokens) == (32, 32 * 528, 32 * 32)
    assert len({each.prompt_token_ids[:512] for each in w3.requests}) == 1
    assert len({each.prompt_token_ids for each in w3.requests}) == 32
    assert longest_request(w3) == 560


@pytest.mark.parametrize("name", WORKLOAD_NAMES)
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    first, again, other = (make_workload(name, LARGE, seed) for seed in (0, 0, 1))  # pyright: ignore[reportArgumentType]
    assert first == again
    assert first != other


def test_token_ids_are_in_range() -> None:
    for name in WORKLOAD_NAMES:
        ids = [token for each in make_workload(name, LARGE).requests for token in each.prompt_token_ids]
        assert 100 <= min(ids) < max(ids) < 40_000
        small = [token for each in make_workload(name, TINY).requests for token in each.prompt_token_ids]
        assert 100 <= min(small) < max(small) < TINY.vocab_size
        assert len(small) == len(ids)


def test_what_a_model_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocabulary has only 90"):
        make_workload("W1", replace(LARGE, vocab_size=90))
    with pytest.raises(ConfigError, match="W3 has a request of 560 tokens, but the model's context is 512"):
        make_workload("W3", replace(LARGE, max_position_embeddings=512))
