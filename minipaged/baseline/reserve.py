"""How many slots a request reserves in a contiguous KV cache: the three rules of the paper's baselines.

Orca's authors did not publish how Orca reserves memory. So the paper measures three rules (section 6.1).
"""

from __future__ import annotations

from minipaged.baseline.buddy import next_power_of_two
from minipaged.choices import ReserveRule
from minipaged.errors import RequestTooLargeError


def slots_to_reserve(
    rule: ReserveRule, *, num_prompt_tokens: int, num_output_tokens: int, max_model_len: int
) -> int:
    """The slots that a request reserves for its whole life, when it is admitted.

    - `"max"`: `max_model_len` slots, the most that any request can need. A real server knows no output
      length in advance, so it can use only this rule.
    - `"pow2"`: slots for the prompt, and for the output length rounded up to a power of two. That is at
      most twice the output: 25 tokens get 32 slots. A real server cannot do this, since it does not know
      the output length; the paper lets the baseline do it anyway.
    - `"oracle"`: exactly the slots that will be used, as if the output length were known. The last output
      token is sampled but never computed, so it needs no slot.

    Args:
        rule: one of the three rules.
        num_prompt_tokens: tokens of the prompt.
        num_output_tokens: tokens that will be generated; at least 1. The engine passes `max_tokens`,
            which is the true length unless a stop condition ends the output earlier.
        max_model_len: the longest prompt plus output. No rule reserves more.

    Raises:
        RequestTooLargeError: prompt plus output is longer than `max_model_len`.

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
