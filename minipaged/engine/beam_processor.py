"""BeamProcessor: one beam search in the engine.

It collects the candidates of all beams, and lets the search choose among them. Then it changes the request's
sequences accordingly (paper, section 4.4 and Fig. 9). The first child of a beam continues the beam's own
sequence, and each further child is forked from it. A beam without children is freed. No block is copied
here. When a beam later writes into a block that it shares, that one block is copied.
"""

from __future__ import annotations

import time
from dataclasses import replace

from minipaged.engine.detokenizer import Detokenizer
from minipaged.engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from minipaged.kv.manager import KVManager
from minipaged.loading.loader import LoadedModel
from minipaged.request import Request, Sequence
from minipaged.runner.model_runner import SequenceResult
from minipaged.sampling.beam_search import BeamSearch, Candidates, Hypothesis, Survivor

NOTHING_LIKELY = "the model's logits hold NaN or infinity, so no next token could be chosen"


class BeamProcessor:
    """Takes the candidates of a request's beams, and makes its `RequestOutput` when the search ends.

    Attributes:
        request: the request. Its `search` is the beam search.
    """

    def __init__(
        self,
        request: Request,
        search: BeamSearch,
        manager: KVManager,
        model: LoadedModel,
        arrival_time: float,
    ) -> None:
        self.request = request
        self._search = search
        self._manager = manager
        self._tokenizer = model.tokenizer
        self._candidates: dict[Sequence, Candidates] = {}
        self._texts: list[str] = []
        self._error: str | None = None
        self._arrival_time = arrival_time
        self._first_token_time: float | None = None
        self._finished_time: float | None = None

    def take(self, result: SequenceResult) -> int | None:
        """Process a step's result for one beam. The step's tokens are already counted as computed.

        Returns:
            When the search ends, the number of tokens of all hypotheses. Before that, `None`.
        """
        # The request is already finished if another beam's logits in this step held NaN or infinity.
        if result.candidates is None or self.request.is_finished:
            return None
        self.add_candidates(result.item.seq, result.candidates)
        if not self.request.is_finished:
            return None
        return sum(seq.num_output_tokens for seq in self.request.sequences)

    def add_candidates(self, beam: Sequence, candidates: Candidates) -> None:
        """Record a beam's candidates. When all beams have theirs, advance the search by one token.

        The token budget may spread the beams over several steps. If the request is preempted between these
        steps, its beams are computed again, and give their candidates again.

        Args:
            beam: one of the request's sequences, with all of its tokens computed. The search must not be
                over.
            candidates: see `BeamSearch.advance`.
        """
        if not candidates:
            self.abort(NOTHING_LIKELY)
            return
        self._candidates[beam] = candidates
        beams = self.request.sequences
        if not all(each.awaits_siblings for each in beams):
            return
        if self._first_token_time is None:
            self._first_token_time = time.monotonic()
        survivors = self._search.advance([self._candidates[each] for each in beams])
        self._candidates.clear()
        if self._search.is_over:
            self._end()
        else:
            self._follow(survivors)

    def _follow(self, survivors: list[Survivor]) -> None:
        """Change the request's sequences into the surviving beams."""
        parents = self.request.sequences
        kept = {survivor.parent for survivor in survivors}
        for i, beam in enumerate(parents):
            if i not in kept:
                self._manager.free(beam)
        taken = {parents[i].index for i in kept}
        free_indices = (i for i in range(self._search.params.beam_width) if i not in taken)
        self.request.sequences = []
        for survivor in survivors:
            beam = parents[survivor.parent]
            if beam in self.request.sequences:
                beam = self._fork(beam, next(free_indices))
            self.request.sequences.append(beam)
        for beam, survivor in zip(self.request.sequences, survivors, strict=True):
            beam.token_ids.append(survivor.token_id)

    def _fork(self, parent: Sequence, index: int) -> Sequence:
        child = Sequence(self.request.prompt_token_ids, index)
        child.token_ids = list(parent.token_ids)
        self._manager.fork(parent, child, parent.num_computed_tokens)
        return child

    def abort(self, error: str | None = None) -> None:
        """End the search. The current beams become its hypotheses."""
        self._error = error
        self._search.abort()
        self._end()

    def _end(self) -> None:
        """Free all beams. The hypotheses become the sequences of the request."""
        for beam in self.request.sequences:
            self._manager.free(beam)
        self.request.sequences = []
        for rank, hypothesis in enumerate(self._search.hypotheses):
            seq = Sequence(self.request.prompt_token_ids, rank)
            seq.token_ids += hypothesis.token_ids
            seq.finish_reason = hypothesis.finish_reason
            self.request.sequences.append(seq)
        try:
            self._texts = [self._text(hypothesis) for hypothesis in self._search.hypotheses]
        except Exception as error:
            # An error in the text of this request must not end other requests.
            self._error = f"{type(error).__name__}: {error}"
        self._finished_time = time.monotonic()

    def _text(self, hypothesis: Hypothesis) -> str:
        if self._tokenizer is None:
            return ""
        # The text does not include the end-of-sequence token.
        ends = hypothesis.finish_reason == "stop"
        token_ids = hypothesis.token_ids[:-1] if ends else hypothesis.token_ids
        detokenizer = Detokenizer(self._tokenizer.decode, self.request.prompt_token_ids)
        return "".join(map(detokenizer.append, token_ids)) + detokenizer.flush()

    def build(self) -> RequestOutput:
        """The output. It holds the hypotheses, best first. Before the search has ended, there are none."""
        request = self.request
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=list(request.prompt_token_ids),
            outputs=[self._completion(*ranked) for ranked in enumerate(self._search.hypotheses)],
            finished=self._search.is_over,
            num_cached_tokens=request.num_cached_tokens or 0,
            num_preemptions=request.num_preemptions,
            prompt_logprobs=None,
            metrics=RequestMetrics(self._arrival_time, self._first_token_time, self._finished_time),
            block_usage=replace(request.block_usage),
        )

    def _completion(self, rank: int, hypothesis: Hypothesis) -> CompletionOutput:
        return CompletionOutput(
            index=rank,
            text=self._texts[rank] if self._texts else "",
            token_ids=list(hypothesis.token_ids),
            finish_reason=hypothesis.finish_reason if self._error is None else "abort",
            stop_reason=self._error,
            cumulative_logprob=hypothesis.cum_logprob,
            score=hypothesis.score,
        )
