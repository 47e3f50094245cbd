"""Check whether an engine gives the same tokens with CUDA graphs and without them."""

from __future__ import annotations

import torch

from minipaged.bench.gpu_engines import make_engine
from minipaged.bench.gpu_part import PartResult, Row
from minipaged.bench.gpu_workload import EngineSizes, first_requests, nano_vllm_workload
from minipaged.engine.outputs import CompletionOutput
from minipaged.sampling.params import SamplingParams

NUM_REQUESTS = 24
"""The number of requests. As they finish, the batch shrinks from this size to 1, and needs graphs of several
sizes."""
LONGEST_PROMPT = 64
TIE = 1e-3
"""For a padded batch, another routine may compute the matrix products, and add their terms in another order.
If the two likeliest tokens are nearer to each other than this in log-probability, either token is right."""


def compare_with_eager(sizes: EngineSizes, device: torch.device) -> PartResult:
    """Compare greedy tokens in float32, with graphs and without, for outputs of different lengths."""
    eager, captured = (_outputs(sizes, device, graphs=graphs) for graphs in (False, True))
    rows: list[Row] = []
    for number, (expected, got) in enumerate(zip(eager, captured, strict=True)):
        difference = first_difference(expected, got)
        rows.append({"request": number, "tokens": len(expected.token_ids), "result": difference})
    num_equal = sum(row["result"] == "equal" for row in rows)
    num_wrong = sum(row["result"] == "different" for row in rows)
    headline = f"{num_equal} of {len(rows)} outputs equal, {len(rows) - num_equal - num_wrong} after a tie"
    return PartResult(headline, rows, failed=num_wrong > 0)


def first_difference(expected: CompletionOutput, got: CompletionOutput) -> str:
    """Compare two outputs up to their first different token.

    Args:
        expected: an output with the log-probabilities of its two likeliest tokens.
        got: another output for the same prompt.

    Returns:
        `"equal"`; `"tie"` if both tokens were nearly equally likely at the first difference; otherwise
        `"different"`.
    """
    tokens, others = expected.token_ids, got.token_ids
    if tokens == others:
        return "equal"
    at = next((i for i, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b), None)
    logprobs = expected.logprobs
    if at is None or logprobs is None or others[at] not in logprobs[at]:
        return "different"
    gap = logprobs[at][tokens[at]].logprob - logprobs[at][others[at]].logprob
    return "tie" if gap < TIE else "different"


def _outputs(sizes: EngineSizes, device: torch.device, *, graphs: bool) -> list[CompletionOutput]:
    engine = make_engine(sizes, device, graphs=graphs, dtype="float32", max_num_seqs=NUM_REQUESTS)
    workload = first_requests(nano_vllm_workload(sizes), NUM_REQUESTS, LONGEST_PROMPT, sizes.compared_outputs)
    for number, request in enumerate(workload.requests):
        max_tokens = max(1, request.max_tokens - number)
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=2)
        engine.add_request(str(number), list(request.prompt_token_ids), params)
    finished: dict[str, CompletionOutput] = {}
    while engine.has_unfinished_requests():
        finished |= {output.request_id: output.outputs[0] for output in engine.step() if output.finished}
    return [finished[str(number)] for number in range(len(workload.requests))]
