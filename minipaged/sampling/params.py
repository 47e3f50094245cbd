"""SamplingParams: how one request is sampled, checked by the constructor.

Names and defaults follow vLLM's `SamplingParams` (vllm/sampling_params.py). This module does not
import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral

from minipaged.errors import SamplingParamsError
from minipaged.known_names import refuses_unknown_names
from minipaged.sampling.field_checks import (
    check_flag,
    check_integer,
    check_number,
    check_optional_integer,
    refuse,
)

MAX_N = 64
"""The most samples of one prompt."""

MAX_LOGPROBS = 20
"""The most alternatives reported for each token: the default of vLLM's engine setting `max_logprobs`."""


@refuses_unknown_names("sampling parameter", SamplingParamsError)
@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen, and when it ends.

    Frozen and hashable: any number of requests may use one instance. NumPy numbers are accepted, and
    converted to Python numbers.

    Attributes:
        n: the number of samples for the prompt, 1 to 64. With `temperature=0` all samples would be equal,
            so only 1 is allowed.
        temperature: divides the logits; any finite number from 0 up. 0 is greedy: it takes the likeliest
            token (after penalties), and `top_k`, `top_p`, `min_p` and `seed` have no effect. vLLM refuses
            temperatures above 2, and replaces those between 0 and 0.01 by 0.01.
        top_k: keep the k likeliest tokens, and tokens as likely as the last of them. 0 or -1 turns it off.
        top_p: keep the likeliest tokens, in order, until their probabilities add up to this number; in
            (0, 1]. 1 turns it off.
        min_p: keep tokens whose probability is at least this share of the largest one; in [0, 1]. 0 turns
            it off.
        repetition_penalty: above 0. For tokens of the prompt or the output, positive logits are divided by
            it and negative logits are multiplied by it. 1 turns it off.
        presence_penalty: in [-2, 2]; subtracted from the logits of tokens in the output.
        frequency_penalty: in [-2, 2]; subtracted once for each time the token is in the output.
        seed: any 64-bit integer, signed or unsigned. With a seed, the tokens do not depend on other
            requests in the batch. With `None` or -1 (as in vLLM), the engine picks a seed.
        max_tokens: the most tokens to generate, 1 or more. With `None`, only the engine's
            `max_model_len` limits them.
        min_tokens: stop tokens and stop strings have no effect before this many tokens; 0 to
            `max_tokens`.
        stop: one or several strings, none of them empty. The output ends when one of them appears in its
            text. If the string is a special token, such as `<|im_end|>`, the output ends at that token,
            even if the text does not show special tokens. Stored as a tuple; see `stop_strings`.
        stop_token_ids: token ids that end the output, in addition to the model's end-of-sequence tokens.
            Stored as a tuple without duplicates; see `stop_ids`.
        include_stop_str_in_output: whether the stop string stays at the end of the text.
        ignore_eos: whether to continue after an end-of-sequence token of the model.
        skip_special_tokens: whether to leave special tokens, such as `<|im_end|>`, out of the text. With
            `False` they are in the text, and stop strings can contain them.
        logprobs: report the log-probability of each output token, and of this many of the likeliest tokens;
            0 to 20. With `None`, report nothing. In vLLM, -1 means the whole vocabulary. Here -1 is refused,
            as it is by a vLLM engine with default settings.
        prompt_logprobs: the same as `logprobs`, for the tokens of the prompt.

    Raises:
        SamplingParamsError: a value has the wrong type or is out of range, or two values contradict each
            other. The message names the field, the value and what is possible.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list[str] | tuple[str, ...] | None = None
    stop_token_ids: list[int] | tuple[int, ...] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "n": check_integer("n", self.n, 1, MAX_N),
            "temperature": check_number("temperature", self.temperature, "0 (greedy) or more", low=0.0),
            "top_k": check_integer("top_k", self.top_k, -1, None, "0 or -1: off"),
            "top_p": check_number("top_p", self.top_p, "above 0 and at most 1 (1: off)", above=0.0, high=1.0),
            "min_p": check_number("min_p", self.min_p, "from 0 (off) to 1", low=0.0, high=1.0),
            "repetition_penalty": check_number(
                "repetition_penalty", self.repetition_penalty, "above 0 (1: off)", above=0.0
            ),
            "presence_penalty": check_number(
                "presence_penalty", self.presence_penalty, "from -2 to 2", low=-2.0, high=2.0
            ),
            "frequency_penalty": check_number(
                "frequency_penalty", self.frequency_penalty, "from -2 to 2", low=-2.0, high=2.0
            ),
            "seed": _seed(self.seed),
            "max_tokens": check_optional_integer("max_tokens", self.max_tokens, 1, None),
            "min_tokens": check_integer("min_tokens", self.min_tokens, 0, None),
            "stop": _stop(self.stop),
            "stop_token_ids": _stop_token_ids(self.stop_token_ids),
            "include_stop_str_in_output": check_flag(
                "include_stop_str_in_output", self.include_stop_str_in_output
            ),
            "ignore_eos": check_flag("ignore_eos", self.ignore_eos),
            "skip_special_tokens": check_flag("skip_special_tokens", self.skip_special_tokens),
            "logprobs": check_optional_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS),
            "prompt_logprobs": check_optional_integer(
                "prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS
            ),
        }
        for field in fields(self):
            object.__setattr__(self, field.name, checked[field.name])
        if self.greedy and self.n > 1:
            refuse(
                "n", self.n, "with temperature=0 every sample would be the same: use n=1, or a temperature"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            refuse("min_tokens", self.min_tokens, f"it must be at most max_tokens={self.max_tokens}")

    # This is read for each token of a request, so it is computed only once.
    @cached_property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, without a random draw."""
        return self.temperature == 0.0

    @cached_property
    def has_penalties(self) -> bool:
        """Whether the logits depend on the tokens so far."""
        return self.repetition_penalty != 1.0 or self.has_output_penalties

    @property
    def has_output_penalties(self) -> bool:
        """Whether the logits depend on how often a token is in the output."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple. The constructor turns it into one."""
        assert isinstance(self.stop, tuple)
        return self.stop

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """`stop_token_ids` as a tuple. The constructor turns it into one."""
        assert isinstance(self.stop_token_ids, tuple)
        return self.stop_token_ids


def _seed(value: object) -> int | None:
    if value is None:
        return None
    possible = "it must be None or a 64-bit integer, from -2**63 to 2**64 - 1"
    if isinstance(value, bool) or not isinstance(value, Integral):
        refuse("seed", value, possible)
    seed = int(value)
    if not -(2**63) <= seed < 2**64:
        refuse("seed", value, possible)
    return None if seed == -1 else seed


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    possible = "it must be a string, or a list or tuple of strings, none of them empty"
    strings = (value,) if isinstance(value, str) else value
    if not isinstance(strings, list | tuple):
        refuse("stop", value, possible)
    checked: list[str] = []
    for string in strings:
        if not isinstance(string, str) or not string:
            refuse("stop", value, possible)
        checked.append(string)
    return tuple(dict.fromkeys(checked))


def _stop_token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        refuse("stop_token_ids", value, "it must be a list or tuple of token ids")
    checked = [check_integer(f"stop_token_ids[{i}]", token_id, 0, None) for i, token_id in enumerate(value)]
    return tuple(dict.fromkeys(checked))
