"""The three workloads: one request, a mixed batch, and a batch with a shared prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from minipaged.errors import ConfigError
from minipaged.model.config import ModelConfig
from minipaged.sim.workload import Workload, WorkloadRequest

WorkloadName = Literal["W1", "W2", "W3"]
WORKLOAD_NAMES: tuple[WorkloadName, ...] = get_args(WorkloadName)

FIRST_TOKEN_ID, END_OF_TOKEN_IDS = 100, 40_000
NUM_REQUESTS = 32
SHORTEST, LONGEST = 16, 256


def make_workload(name: WorkloadName, model: ModelConfig, seed: int = 0) -> Workload:
    """Make one of the workloads, of random token ids in [100, 40000).

    - W1: one request with 128 prompt tokens and 128 output tokens.
    - W2: 32 requests. Prompts and outputs have 16 to 256 tokens, drawn uniformly.
    - W3: 32 requests with 32 output tokens each. They share a prefix of 512 tokens, followed by 16 tokens of
      their own.

    If the vocabulary is smaller, the ids are limited to it. The lengths never change, so a workload is the
    same work for every model.

    Args:
        name: the workload's name.
        model: configuration of the model that will serve the workload.
        seed: the same seed gives the same workload.

    Raises:
        ConfigError: the vocabulary has no such ids, or the model's context is too short.
    """
    end = min(END_OF_TOKEN_IDS, model.vocab_size)
    if end <= FIRST_TOKEN_ID:
        raise ConfigError(
            f"the workloads have token ids from {FIRST_TOKEN_ID} on, but the vocabulary has only "
            f"{model.vocab_size}: choose a model with a larger vocabulary"
        )
    rng = np.random.default_rng(seed)
    workload = _MAKERS[name](rng, end)
    longest = longest_request(workload)
    if longest > model.max_position_embeddings:
        raise ConfigError(
            f"{name} has a request of {longest} tokens, but the model's context is "
            f"{model.max_position_embeddings}: choose another workload, or a model with a longer context"
        )
    return workload


def longest_request(workload: Workload) -> int:
    """Prompt and output tokens of the longest request."""
    return max(len(each.prompt_token_ids) + each.max_tokens for each in workload.requests)


def _single(rng: np.random.Generator, end: int) -> Workload:
    return Workload("one request", (WorkloadRequest(_token_ids(rng, 128, end), 128),))


def _mixed(rng: np.random.Generator, end: int) -> Workload:
    prompts = rng.integers(SHORTEST, LONGEST + 1, NUM_REQUESTS).tolist()
    outputs = rng.integers(SHORTEST, LONGEST + 1, NUM_REQUESTS).tolist()
    return Workload(
        f"{NUM_REQUESTS} requests of mixed lengths, at once",
        tuple(
            WorkloadRequest(_token_ids(rng, prompt, end), output)
            for prompt, output in zip(prompts, outputs, strict=True)
        ),
    )


def _shared_prefix(rng: np.random.Generator, end: int) -> Workload:
    prefix = _token_ids(rng, 512, end)
    return Workload(
        f"{NUM_REQUESTS} requests with one shared prefix, at once",
        tuple(WorkloadRequest(prefix + _token_ids(rng, 16, end), 32) for _ in range(NUM_REQUESTS)),
        num_prefix_tokens=len(prefix),
        num_prefixes=1,
    )


_MAKERS: dict[WorkloadName, Callable[[np.random.Generator, int], Workload]] = {
    "W1": _single,
    "W2": _mixed,
    "W3": _shared_prefix,
}


def _token_ids(rng: np.random.Generator, count: int, end: int) -> tuple[int, ...]:
    return tuple(rng.integers(FIRST_TOKEN_ID, end, count).tolist())
