"""The options that become `SamplingParams`, for the commands that generate text."""

from __future__ import annotations

import argparse
from dataclasses import replace

from minipaged.sampling.params import SamplingParams

_OPTIONS = (
    "n",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "stop",
)


def add_sampling_arguments(
    parser: argparse.ArgumentParser, own: SamplingParams, *, model_goes_first: bool = False
) -> None:
    """Add the options. An option that is not given stays `None`. Ranges are checked by `SamplingParams`.

    Args:
        parser: the command's parser.
        own: the command's values for options that are not given.
        model_goes_first: whether the model's generation_config overrides `own`.
    """

    def default(value: float, note: str = "") -> str:
        first = ": the model's own, else" if model_goes_first else ""
        return f"(default{first} {value:g}{note})"

    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-tokens", type=int, metavar="N", help=f"most tokens of an output (default {own.max_tokens})"
    )
    group.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help=f"0: always the likeliest token {default(own.temperature)}",
    )
    group.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help=f"draw from the likeliest tokens that add up to this probability {default(own.top_p)}",
    )
    group.add_argument(
        "--top-k", type=int, metavar="K", help=f"draw from this many tokens {default(own.top_k, ': all')}"
    )
    group.add_argument(
        "--min-p",
        type=float,
        metavar="P",
        help=f"draw from tokens at least this share as likely as the likeliest {default(own.min_p)}",
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="X",
        help=f"above 1: repeat less {default(own.repetition_penalty)}",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="another seed gives other draws (default: the engine's own, the same in every run)",
    )
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="end the output where this text appears; repeatable"
    )


def sampling_params(args: argparse.Namespace, own: SamplingParams) -> SamplingParams:
    """The options that were given, and the command's own values for the others.

    Raises:
        SamplingParamsError: a value is out of its range.
    """
    given = {name: value for name in _OPTIONS if (value := getattr(args, name, None)) is not None}
    return replace(own, **given)


def in_words(params: SamplingParams) -> str:
    """The temperature, and all other settings that are not neutral, as in `temperature=0.6, top_p=0.95`."""
    neutral = SamplingParams()
    others = ("top_k", "top_p", "min_p", "repetition_penalty")
    shown = [name for name in others if getattr(params, name) != getattr(neutral, name)]
    return ", ".join(f"{name}={getattr(params, name):g}" for name in ("temperature", *shown))
