"""A second sampler for comparison, in plain Python: one row and one token at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minipaged.sampling.params import SamplingParams


def penalised(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    banned: Sequence[int] = (),
) -> list[float]:
    result: list[float] = []
    for token, logit in enumerate(logits):
        if token in banned:
            result.append(-math.inf)
            continue
        value = logit
        if token in prompt or token in output:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        times = list(output).count(token)
        value -= params.frequency_penalty * times
        value -= params.presence_penalty if times else 0.0
        result.append(value)
    return result


def distribution(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """The probability of each token after temperature, min-p, top-k and top-p."""
    peak = max(logits)
    weights = [math.exp((logit - peak) / params.temperature) for logit in logits]
    kept = {token for token, weight in enumerate(weights) if weight > 0 and weight >= params.min_p}
    order = sorted(kept, key=lambda token: (-logits[token], token))
    if params.top_k > 0 and len(order) > params.top_k:
        border = logits[order[params.top_k - 1]]
        order = [token for token in order if logits[token] >= border]
    total = sum(weights[token] for token in order)
    nucleus: list[int] = []
    reached = 0.0
    for token in order:
        if params.top_p < 1.0 and reached >= params.top_p * total:
            break
        nucleus.append(token)
        reached += weights[token]
    return [weights[token] / reached if token in nucleus else 0.0 for token in range(len(logits))]


def pick(probabilities: Sequence[float], uniform: float) -> int:
    upto = 0.0
    for token, probability in enumerate(probabilities):
        upto += probability
        if probability > 0 and upto > uniform:
            return token
    return max(token for token, probability in enumerate(probabilities) if probability > 0)
