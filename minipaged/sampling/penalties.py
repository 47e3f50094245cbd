"""Changing the logits before the filters: banned tokens and penalties.

Both change only the logits of a few tokens in each row. So they gather and scatter exactly these entries, for
all rows at once, and need no dense `[rows, vocab]` masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from minipaged.transfer import column, positive_column


def ban_tokens(logits: Tensor, banned: Sequence[Sequence[int]]) -> None:
    """Set the logits of banned tokens to −inf, in place.

    Args:
        logits: `[R, V]`, floating point.
        banned: for each row, the token ids that must not be chosen. Ids outside the vocabulary are
            ignored.
    """
    vocab_size = logits.shape[1]
    entries = [
        (row, token) for row, tokens in enumerate(banned) for token in tokens if 0 <= token < vocab_size
    ]
    if not entries:
        return
    rows = column([row for row, _ in entries], torch.int64, logits.device)  # [E]
    tokens = column([token for _, token in entries], torch.int64, logits.device)  # [E]
    # The value is created on the device, since a Python number would have to be copied to it.
    logits.index_put_((rows, tokens), logits.new_full((), float("-inf")))


def penalise(
    logits: Tensor,
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    repetition: Sequence[float],
    presence: Sequence[float],
    frequency: Sequence[float],
) -> None:
    """Apply the three penalties, in place, in vLLM's order (vllm/v1/sample/ops/penalties.py).

    The repetition penalty (Keskar et al., "CTRL", 2019, section 4.1) applies to tokens of the prompt and the
    output. It divides positive logits and multiplies negative ones, so a value above 1 always lowers them.
    The frequency and presence penalties (OpenAI's API) apply only to tokens of the output:
    `logit −= frequency × count + presence × (count > 0)`.

    Args:
        logits: `[R, V]`, floating point.
        prompts, outputs: the token ids of each row. Ids outside the vocabulary are ignored.
        repetition: the repetition penalty of each row, above 0; 1 turns it off.
        presence, frequency: these penalties of each row; 0 turns them off.
    """
    vocab_size = logits.shape[1]
    rows: list[int] = []
    tokens: list[int] = []
    counts: list[int] = []
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        repeats = repetition[row] != 1.0
        if not repeats and presence[row] == 0.0 and frequency[row] == 0.0:
            continue
        count = Counter(output)
        if repeats:
            for token in set(prompt).difference(count):
                count[token] = 0
        for token, times in count.items():
            if 0 <= token < vocab_size:
                rows.append(row)
                tokens.append(token)
                counts.append(times)
    if not rows:
        return
    device, dtype = logits.device, logits.dtype
    row_index = column(rows, torch.int64, device)  # [E]
    token_index = column(tokens, torch.int64, device)  # [E]
    count_of = column(counts, dtype, device)  # [E]
    repetition_of = positive_column(repetition, dtype, device)[row_index]  # [E]
    presence_of = column(presence, dtype, device)[row_index]  # [E]
    frequency_of = column(frequency, dtype, device)[row_index]  # [E]

    value = logits[row_index, token_index]  # [E]; each (row, token) occurs once
    value = torch.where(value > 0, value / repetition_of, value * repetition_of)
    value = value - frequency_of * count_of - presence_of * (count_of > 0)
    logits[row_index, token_index] = value
