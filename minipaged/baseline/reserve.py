"""How many slots a request reserves in a contiguous KV cache: the paper's three baselines.

The paper's Orca did not say how it reserves, so its authors measured three rules (section 6.1).
"""

from __future__ import annotations

from minipaged.baseline.buddy import next_power_of_two
from minipaged.choices import ReserveRule
from minipaged.errors import RequestTooLargeError


def slots_to_reserve(
    rule: ReserveRule, *, num_prompt_tokens: int, num_output_tokens: int, max_model_len: int
) -> int:
    """The slots that one request takes for its whole life when it is admitted.

    - `"max"`: as many as any request may ever need. All that a server knows when an output can end
      at any moment, and whose output lengths nobody told it.
    - `"pow2"`: room for the next power of two of the output, so at most twice of it: an output of
      25 gets 32. Nobody can do that either; the paper grants it to the baseline.
    - `"oracle"`: what will be used, and nothing else: it foresees the output's true length. The
      last output token is sampled and never computed, so that it needs no slot.

    Args:
        rule: which of the three.
        num_prompt_tokens: tokens of the prompt.
        num_output_tokens: tokens that will be generated; at least 1. An engine puts `max_tokens`
            here, which is the true length when nothing ends the output earlier.
        max_model_len: longest prompt plus output; no rule reserves more.

    Raises:
        RequestTooLargeError: prompt and output are longer than `max_model_len`.

    >>> sizes = {"num_prompt_tokens": 100, "num_output_tokens": 25, "max_model_len": 2048}
    >>> [slots_to_reserve(rule, **sizes) for rule in ("max", "pow2", "oracle")]
    [2048, 132, 124]
    """
    if num_prompt_tokens + num_output_tokens > max_model_len:
        raise RequestTooLargeError(
            f"{num_prompt_tokens:,} prompt and {num_output_tokens:,} output tokens are more than "
            f"max_model_len={max_model_len:,}"
        )
    if rule == "max":
        return max_model_len
    if rule == "pow2":
        return min(num_prompt_tokens + next_power_of_two(num_output_tokens), max_model_len)
    return num_prompt_tokens + num_output_tokens - 1
