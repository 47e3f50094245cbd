"""Requests from files: a trace of arrivals and lengths, or ShareGPT's conversations.

A trace has one JSON object in each line, sorted by arrival:

    {"arrival": 0.41, "prompt_tokens": 161, "output_tokens": 338}

ShareGPT's file is a JSON list of conversations. Each has a list `conversations` of turns with `from`
(`human` or `gpt`) and `value`, the text. A request is a human turn and the answer to it. A tokenizer counts
the request's lengths.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from minipaged.errors import ConfigError
from minipaged.sim.lengths import RequestLengths
from minipaged.sim.timed_request import TimedRequest


def read_trace(path: Path) -> Iterator[TimedRequest]:
    """The requests of a trace, read line by line.

    Raises:
        ConfigError: a line is not such an object, or its arrival is earlier than that of the line before. The
            message gives the line's number.
        OSError: the file cannot be read.
    """
    before = 0.0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                request = _timed(json.loads(line))
            except (json.JSONDecodeError, ConfigError) as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None
            if request.arrival < before:
                raise ConfigError(
                    f"{path}, line {number}: it arrives at {request.arrival} s, before the line above "
                    f"({before} s): sort the lines by arrival"
                )
            before = request.arrival
            yield request


def _timed(values: object) -> TimedRequest:
    if not isinstance(values, dict):
        raise ConfigError(f"a JSON object is needed, not {values!r:.80}")
    arrival = values.get("arrival")
    if isinstance(arrival, bool) or not isinstance(arrival, int | float):
        raise ConfigError(f"'arrival' must be a number of seconds, not {arrival!r:.80}")
    counts = []
    for name in ("prompt_tokens", "output_tokens"):
        count = values.get(name)
        if isinstance(count, bool) or not isinstance(count, int):
            raise ConfigError(f"{name!r} must be an integer, not {count!r:.80}")
        counts.append(count)
    return TimedRequest(float(arrival), *counts)


def read_share_gpt(path: Path, count_tokens: Callable[[str], int]) -> list[RequestLengths]:
    """The lengths of all requests in a file of ShareGPT's form. Empty turns are left out.

    Args:
        path: the file.
        count_tokens: the number of tokens of a text.

    Raises:
        ConfigError: the file has another form, or holds no request.
        OSError: the file cannot be read.
    """
    try:
        conversations = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(conversations, list):
        raise ConfigError(f"{path} does not hold a list of conversations")
    found: list[RequestLengths] = []
    for conversation in conversations:
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(turns, list):
            raise ConfigError(f"{path}: a conversation has no list 'conversations': {conversation!r:.80}")
        for asked, answered in pairwise(turns):
            prompt, output = _text(asked, "human"), _text(answered, "gpt")
            if prompt and output:
                found.append(RequestLengths(count_tokens(prompt), count_tokens(output)))
    if not found:
        raise ConfigError(f"{path} holds no question with an answer")
    return found


def _text(turn: object, role: str) -> str:
    """The text of a turn if it has this role, and otherwise an empty string."""
    if not isinstance(turn, dict) or turn.get("from") != role:
        return ""
    value = turn.get("value")
    return value if isinstance(value, str) else ""


def at_times(
    lengths: list[RequestLengths], arrivals: Iterator[float], max_model_len: int
) -> tuple[list[TimedRequest], int]:
    """Give arrival times to lengths. Requests longer than `max_model_len` are left out.

    Returns:
        The requests, and how many were left out.
    """
    fitting = [each for each in lengths if each.num_prompt_tokens + each.num_output_tokens <= max_model_len]
    timed = [
        TimedRequest(arrival, each.num_prompt_tokens, each.num_output_tokens)
        for each, arrival in zip(fitting, arrivals, strict=False)
    ]
    return timed, len(lengths) - len(fitting)
