"""BeamSearchParams: the parameters of one beam search, checked by the constructor.

The names are those of vLLM's `BeamSearchParams` (vllm/sampling_params.py). The meanings are those of
transformers' `generate(num_beams=...)`. This module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from minipaged.errors import SamplingParamsError
from minipaged.known_names import refuses_unknown_names
from minipaged.sampling.field_checks import check_flag, check_integer, check_number, refuse
from minipaged.sampling.params import MAX_N

EarlyStopping = bool | Literal["never"]


@refuses_unknown_names("parameter of a beam search", SamplingParamsError)
@dataclass(frozen=True)
class BeamSearchParams:
    """How many beams to follow, how far, and how hypotheses are ranked.

    The score of a hypothesis is the sum of its tokens' log-probabilities, divided by
    `length ** length_penalty`. The length is the number of output tokens, including an end-of-sequence
    token.

    Attributes:
        beam_width: the number of beams to follow, and of hypotheses to return; 1 to 64.
        max_tokens: the most tokens of a hypothesis, 1 or more.
        length_penalty: a value above 0 favours long hypotheses, one below 0 short ones; -10 to 10.
        ignore_eos: whether the model's end-of-sequence tokens are treated like any other token.
        early_stopping: when a search that has `beam_width` hypotheses ends. With `True`, it ends at once.
            With `False`, it ends when the best beam's score at its present length is not above the score
            of the worst hypothesis. But a beam's score may improve as the beam grows longer. So `"never"`
            compares the best score that the beam could still reach. Under a positive length penalty, this
            is its score at `max_tokens`. Names and default are those of transformers.

    Raises:
        SamplingParamsError: a value has the wrong type or is out of range. The message names the field,
            the value and what is possible.
    """

    beam_width: int
    max_tokens: int
    length_penalty: float = 1.0
    ignore_eos: bool = False
    early_stopping: EarlyStopping = False

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "beam_width": check_integer("beam_width", self.beam_width, 1, MAX_N),
            "max_tokens": check_integer("max_tokens", self.max_tokens, 1, None),
            "length_penalty": check_number(
                "length_penalty", self.length_penalty, "from -10 to 10", low=-10.0, high=10.0
            ),
            "ignore_eos": check_flag("ignore_eos", self.ignore_eos),
            "early_stopping": _early_stopping(self.early_stopping),
        }
        for field in fields(self):
            object.__setattr__(self, field.name, checked[field.name])


def _early_stopping(value: object) -> EarlyStopping:
    if isinstance(value, str) and value == "never":
        return "never"
    if not isinstance(value, bool):
        refuse("early_stopping", value, "it must be True, False or 'never'")
    return value
