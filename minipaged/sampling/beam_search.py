"""BeamSearch: which beams to follow, and which hypotheses are the best. Neither tensors nor blocks.

Each step takes the likeliest next tokens of every beam, and looks at the best extensions over all
beams. Those that end become hypotheses; the best of the others are the next beams. What this means
for blocks is up to `beam_processor.py`.

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
    """A line of output tokens that is being followed, and the sum of their log-probabilities."""

    token_ids: tuple[int, ...] = ()
    cum_logprob: float = 0.0


@dataclass(frozen=True)
class Hypothesis:
    """A beam that has ended.

    Attributes:
        token_ids: its output tokens, an end of sequence included.
        cum_logprob: the sum of their log-probabilities.
        score: `cum_logprob / len(token_ids) ** length_penalty`.
        finish_reason: `"stop"` (end of sequence), `"length"` or `"abort"`.
    """

    token_ids: tuple[int, ...]
    cum_logprob: float
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True)
class Survivor:
    """A beam of the next step: `beams[parent]` of this step, and one token more."""

    parent: int
    token_id: int


@dataclass(frozen=True)
class _Extension:
    parent: int
    token_id: int
    cum_logprob: float


class BeamSearch:
    """One search, from the empty output on.

    Args:
        params: width, penalty and when to end.
        max_tokens: the most output tokens: `params.max_tokens`, or less where there is less room.
        eos_token_ids: the tokens that end a hypothesis.

    Attributes:
        params: as given.
        beams: those that are followed, best first; one to begin with, none when the search is over.
        hypotheses: the best so far, best first, at most `beam_width`.
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
        """How many extensions a step looks at, and so how many candidates it needs of each beam.

        Even if every beam's end-of-sequence tokens are among them, `beam_width` others remain.
        """
        return max(2, 1 + len(self._eos_token_ids)) * self.params.beam_width

    @property
    def is_over(self) -> bool:
        return not self.beams

    def advance(self, candidates: Sequence[Candidates]) -> list[Survivor]:
        """Take one step.

        Args:
            candidates: for each of `beams`, its `num_candidates` likeliest next tokens, or the whole
                vocabulary if that is less.

        Returns:
            Where each of the new `beams` comes from, in their order; nothing if the search is over.
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
            # The extensions further down are spare beams; they are not good enough to end.
            elif rank < self.params.beam_width:
                self._add_hypothesis(beam, reason)
        self.beams = beams[: self.params.beam_width]
        if self._is_settled():
            self.beams = []
        return survivors[: len(self.beams)]

    def abort(self) -> None:
        """End the search here: the beams become hypotheses as they are."""
        for beam in self.beams:
            self._add_hypothesis(beam, "abort")
        self.beams = []

    def _best_extensions(self, candidates: Sequence[Candidates]) -> list[_Extension]:
        extensions = [
            _Extension(parent, token_id, beam.cum_logprob + logprob)
            for parent, (beam, likeliest) in enumerate(zip(self.beams, candidates, strict=True))
            for token_id, logprob in likeliest
        ]
        # Of equals, the better beam's and then the lower token first.
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
        """Whether no beam is worth following any more."""
        if not self.beams or len(self.hypotheses) < self.params.beam_width:
            return not self.beams
        if self.params.early_stopping is True:
            return True
        length = self._num_tokens
        if self.params.early_stopping == "never" and self.params.length_penalty > 0:
            length = self._max_tokens
        return self._score(self.beams[0].cum_logprob, length) <= self.hypotheses[-1].score

    def _score(self, cum_logprob: float, length: int) -> float:
        # An empty output, which only an abort leaves behind, has nothing to divide.
        return cum_logprob / max(length, 1) ** self.params.length_penalty
