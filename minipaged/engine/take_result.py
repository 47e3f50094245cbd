"""From what a step found out about a sequence to the tokens, the blocks and the output of its request."""

from __future__ import annotations

from minipaged.engine.beam_processor import BeamProcessor
from minipaged.engine.output_processor import OutputProcessor
from minipaged.kv.manager import KVManager
from minipaged.request import Request, Sequence
from minipaged.runner.model_runner import SequenceResult

RequestProcessor = OutputProcessor | BeamProcessor


def take_result(result: SequenceResult, processor: RequestProcessor, manager: KVManager) -> int | None:
    """Take in one sequence's result: its tokens are computed now, and what follows them is known.

    Where a prompt ends, the other samples fork; a sample that ends gives back what it holds.

    Args:
        result: what the runner found out.
        processor: its request's.
        manager: where the memory is.

    Returns:
        The number of new output tokens; `None` if there is nothing to report yet. A beam search reports
        at its end alone, with the tokens of its hypotheses.
    """
    request, seq = result.item.request, result.item.seq
    first = seq.num_computed_tokens + 1
    seq.num_computed_tokens += result.item.num_tokens
    if isinstance(processor, BeamProcessor):
        if result.candidates is None or request.is_finished:  # another beam's logits were not sound
            return None
        processor.add_candidates(seq, result.candidates)
        return sum(one.num_output_tokens for one in request.sequences) if request.is_finished else None
    processor.add_prompt_logprobs(result.prompt_logprobs, first)
    if not result.sampled_tokens:
        return None
    samples = [seq, *_fork(request, seq, len(result.sampled_tokens) - 1, manager)]
    for sample, sampled in zip(samples, result.sampled_tokens, strict=True):
        processor.add_token(sample, sampled)
        if sample.is_finished:
            manager.free(sample)
    return sum(sampled.error is None for sampled in result.sampled_tokens)


def _fork(request: Request, parent: Sequence, count: int, manager: KVManager) -> list[Sequence]:
    """The other samples of a request, which begin where its prompt ends."""
    children = []
    for index in range(1, count + 1):
        child = Sequence(request.prompt_token_ids, index)
        manager.fork(parent, child, parent.num_computed_tokens)
        children.append(child)
    request.sequences += children
    return children
