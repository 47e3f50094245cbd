"""BeamSearchParams: what one beam search asks for, checked when it is made.

Names follow vLLM's `BeamSearchParams` (vllm/sampling_params.py); the meaning of each is that of
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
    """How wide to search, how far, and which hypotheses are the best.

    A hypothesis's score is the sum of its tokens' log-probabilities, divided by
    `length ** length_penalty`. The length counts output tokens, the end of sequence among them.

    Attributes:
        beam_width: beams that are followed, and hypotheses that are returned, 1 to 64.
        max_tokens: the most tokens of a hypothesis, 1 or more.
        length_penalty: above 0 it favours long hypotheses, below 0 short ones; -10 to 10.
        ignore_eos: treat the model's end of sequence like any other token.
        early_stopping: when to end, once there are `beam_width` hypotheses. `True`: at once. `False`:
            when the best beam, scored at its present length, is no better than the worst of them. A
            longer beam could still score better, so `"never"` judges it by the length that serves it
            best: `max_tokens` under a positive length penalty. (transformers' names and default.)

    Raises:
        SamplingParamsError: a value of the wrong type or out of range; the message names the field,
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
