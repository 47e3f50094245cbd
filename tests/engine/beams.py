"""transformers' beam search, and comparing the engine's hypotheses with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import GenerationConfig

from minipaged import BeamSearchOutput, BeamSearchParams, RequestOutput
from minipaged.loading.loader import LoadedModel
from tests.oracle import Oracle

TIE = 1e-4
"""If two scores differ by at most this, their hypotheses may come in either order."""


def same_score(a: float, b: float) -> bool:
    """Whether two scores differ by at most `TIE`, or by a float32 rounding error if they are large.

    transformers sums log-probabilities in float32, and the engine sums them in Python's floats.
    """
    return abs(a - b) <= max(TIE, 1e-6 * abs(b))


@dataclass(frozen=True)
class Expected:
    """A hypothesis of transformers: output tokens, and its score."""

    token_ids: list[int]
    score: float


@torch.inference_mode()
def transformers_beam_search(
    oracle: Oracle, prompt: Sequence[int], params: BeamSearchParams, eos_token_ids: Sequence[int]
) -> list[Expected]:
    """All `beam_width` hypotheses of `generate(num_beams=beam_width, do_sample=False)`, best first."""
    settings = GenerationConfig(
        do_sample=False,
        num_beams=params.beam_width,
        num_return_sequences=params.beam_width,
        max_new_tokens=params.max_tokens,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
        eos_token_id=None if params.ignore_eos else (list(eos_token_ids) or None),
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    inputs = torch.tensor([list(prompt)])
    output = oracle.model.generate(  # pyright: ignore[reportCallIssue]
        inputs, attention_mask=torch.ones_like(inputs), generation_config=settings
    )
    lengths = (output.beam_indices >= 0).sum(dim=1).tolist()  # what lies beyond is padding
    return [
        Expected(tokens[len(prompt) : len(prompt) + length].tolist(), float(score))
        for tokens, length, score in zip(output.sequences, lengths, output.sequences_scores, strict=True)
    ]


def assert_hypotheses(output: RequestOutput, expected: list[Expected]) -> None:
    """Check that tokens and scores are the same, rank by rank. Ranks may differ among equal scores."""
    assert output.finished
    scores = [sample.score for sample in output.outputs if sample.score is not None]
    tokens = [sample.token_ids for sample in output.outputs]
    _assert_same([Expected(*one) for one in zip(tokens, scores, strict=True)], expected)


def _assert_same(got: list[Expected], expected: list[Expected]) -> None:
    assert len(got) == len(expected)
    for rank, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        assert same_score(mine.score, theirs.score), f"rank {rank}: {mine} instead of {theirs}"
        tied = [other.token_ids for other in expected if same_score(other.score, theirs.score)]
        assert mine.token_ids in tied, f"rank {rank}: {mine} instead of {theirs}"
    assert len({tuple(mine.token_ids) for mine in got}) == len(got)


def with_eos(model: LoadedModel, *eos_token_ids: int) -> LoadedModel:
    """The same model with other end-of-sequence tokens."""
    return dataclasses.replace(model, config=dataclasses.replace(model.config, eos_token_ids=eos_token_ids))


def assert_sequences(output: BeamSearchOutput, expected: list[Expected]) -> None:
    """The same check for a result of `LLM.beam_search`."""
    num_prompt_tokens = len(output.prompt_token_ids)
    got = [Expected(seq.tokens[num_prompt_tokens:], seq.score) for seq in output.sequences]
    assert all(seq.tokens[:num_prompt_tokens] == output.prompt_token_ids for seq in output.sequences)
    _assert_same(got, expected)
