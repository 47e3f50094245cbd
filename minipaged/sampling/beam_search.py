"""BeamSearch: decides which beams to follow, and which hypotheses are the best. It uses no tensors.

Each step extends every beam by its likeliest next tokens, and takes the best extensions of all beams. The
extensions that end become hypotheses. The best of those that do not end are the next beams.
`engine/beam_processor.py` changes the block tables accordingly.

The rules are those of transformers' `generate(num_beams=...)`; see `_beam_search` in its
`generation/utils.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minipaged.choices import FinishReason
from minipaged.sampling.beam_params import BeamSearchParams

Candidates = Sequence[tuple[int, float]]
"""The likeliest next tokens of one beam: (token id, log-probability), likeliest first."""


@dataclass(frozen=True)
class Beam:
    """An output that the search extends, and the sum of its tokens' log-probabilities."""

    token_ids: tuple[int, ...] = ()
    cum_logprob: float = 0.0


@dataclass(frozen=True)
class Hypothesis:
    """A beam that has ended.

    Attributes:
        token_ids: its output tokens, including an end-of-sequence token if there is one.
        cum_logprob: the sum of their log-probabilities.
        score: `cum_logprob / len(token_ids) ** length_penalty`.
        finish_reason: `"stop"` (an end-of-sequence token), `"length"` or `"abort"`.
    """

    token_ids: tuple[int, ...]
    cum_logprob: float
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True)
class Survivor:
    """A beam of the next step: `beams[parent]` of this step, extended by one token."""

    parent: int
    token_id: int


@dataclass(frozen=True)
class _Extension:
    parent: int
    token_id: int
    cum_logprob: float


class BeamSearch:
    """One beam search. It begins with a single beam, the empty output.

    Args:
        params: the parameters of the search.
        max_tokens: the most output tokens: `params.max_tokens`, or less if `max_model_len` requires it.
        eos_token_ids: the tokens that end a hypothesis.

    Attributes:
        params: the parameters of the search.
        beams: the beams that are followed, best first; empty when the search is over.
        hypotheses: the best hypotheses so far, best first; at most `beam_width`.
    """

    def __init__(self, params: BeamSearchParams, max_tokens: int, eos_token_ids: Sequence[int]) -> None:
        self.params = params
        self.beams: list[Beam] = [Beam()]
        self.hypotheses: list[Hypothesis] = []
        self._max_tokens = max_tokens
        self._eos_token_ids = frozenset(() if params.ignore_eos else eos_token_ids)
        self._num_tokens = 0

    @property
    def num_candidates(self) -> int:
        """How many extensions a step takes, and so how many candidates it needs from each beam.

        At least `beam_width` of these extensions do not end, even if they include every end-of-sequence
        token of every beam.
        """
        return max(2, 1 + len(self._eos_token_ids)) * self.params.beam_width

    @property
    def is_over(self) -> bool:
        return not self.beams

    def advance(self, candidates: Sequence[Candidates]) -> list[Survivor]:
        """Take one step.

        Args:
            candidates: for each of `beams`, its `num_candidates` likeliest next tokens, or the whole
                vocabulary if that is smaller.

        Returns:
            For each of the new `beams`, in their order, the beam that it extends. The list is empty if the
            search is over.
        """
        best = self._best_extensions(candidates)
        self._num_tokens += 1
        survivors: list[Survivor] = []
        beams: list[Beam] = []
        for rank, extension in enumerate(best):
            token_ids = (*self.beams[extension.parent].token_ids, extension.token_id)
            beam = Beam(token_ids, extension.cum_logprob)
            reason = self._end_reason(extension.token_id)
            if reason is None:
                survivors.append(Survivor(extension.parent, extension.token_id))
                beams.append(beam)
            # An extension becomes a hypothesis only if it is among the best `beam_width` extensions. The
            # other extensions are there to replace beams that end.
            elif rank < self.params.beam_width:
                self._add_hypothesis(beam, reason)
        self.beams = beams[: self.params.beam_width]
        if self._is_settled():
            self.beams = []
        return survivors[: len(self.beams)]

    def abort(self) -> None:
        """End the search. The current beams become hypotheses."""
        for beam in self.beams:
            self._add_hypothesis(beam, "abort")
        self.beams = []

    def _best_extensions(self, candidates: Sequence[Candidates]) -> list[_Extension]:
        extensions = [
            _Extension(parent, token_id, beam.cum_logprob + logprob)
            for parent, (beam, likeliest) in enumerate(zip(self.beams, candidates, strict=True))
            for token_id, logprob in likeliest
        ]
        # If sums are equal, the extension of the better beam comes first, then the lower token id.
        extensions.sort(key=lambda extension: (-extension.cum_logprob, extension.parent, extension.token_id))
        return extensions[: self.num_candidates]

    def _end_reason(self, token_id: int) -> FinishReason | None:
        if token_id in self._eos_token_ids:
            return "stop"
        return "length" if self._num_tokens == self._max_tokens else None

    def _add_hypothesis(self, beam: Beam, reason: FinishReason) -> None:
        score = self._score(beam.cum_logprob, len(beam.token_ids))
        self.hypotheses.append(Hypothesis(beam.token_ids, beam.cum_logprob, score, reason))
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)  # stable
        del self.hypotheses[self.params.beam_width :]

    def _is_settled(self) -> bool:
        """Whether the search is over: no beams are left, or none can improve the hypotheses."""
        if not self.beams or len(self.hypotheses) < self.params.beam_width:
            return not self.beams
        if self.params.early_stopping is True:
            return True
        length = self._num_tokens
        if self.params.early_stopping == "never" and self.params.length_penalty > 0:
            length = self._max_tokens
        return self._score(self.beams[0].cum_logprob, length) <= self.hypotheses[-1].score

    def _score(self, cum_logprob: float, length: int) -> float:
        # After an abort, an output may be empty. Its length of 0 must not be a divisor.
        return cum_logprob / max(length, 1) ** self.params.length_penalty
