"""Traces and ShareGPT's conversations are read; what is wrong in them is named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minipaged.errors import ConfigError
from minipaged.sim.lengths import RequestLengths
from minipaged.sim.timed_request import TimedRequest, all_at_once
from minipaged.sim.trace_files import at_times, read_share_gpt, read_trace

LINE = '{"arrival": 0.5, "prompt_tokens": 3, "output_tokens": 4, "more": "is ignored"}\n'


def trace(folder: Path, text: str) -> list[TimedRequest]:
    path = folder / "trace.jsonl"
    path.write_text(text)
    return list(read_trace(path))


def test_a_trace_is_read(tmp_path: Path) -> None:
    later = '{"arrival": 2, "prompt_tokens": 7, "output_tokens": 1}'
    assert trace(tmp_path, LINE + "\n" + later) == [TimedRequest(0.5, 3, 4), TimedRequest(2.0, 7, 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2: Expecting value"),
        ("[1, 2]", "line 2: a JSON object is needed"),
        ('{"prompt_tokens": 3, "output_tokens": 4}', "line 2: 'arrival' must be a number"),
        ('{"arrival": true, "prompt_tokens": 3, "output_tokens": 4}', "'arrival' must be a number"),
        ('{"arrival": 1, "prompt_tokens": 3.5, "output_tokens": 4}', "'prompt_tokens' must be an integer"),
        ('{"arrival": 1, "prompt_tokens": 3}', "'output_tokens' must be an integer, not None"),
        ('{"arrival": 1, "prompt_tokens": 0, "output_tokens": 4}', "line 2: a request arrives at 0 s"),
        ('{"arrival": 0.1, "prompt_tokens": 3, "output_tokens": 4}', "line 2: .* sort the lines"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        trace(tmp_path, LINE + line)


def conversation(*turns: tuple[str, object]) -> dict[str, object]:
    return {"conversations": [{"from": role, "value": value} for role, value in turns]}


def share_gpt(folder: Path, content: object) -> list[RequestLengths]:
    path = folder / "share.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_share_gpt(path, lambda text: len(text.split()))


def test_a_question_with_its_answer_is_a_request(tmp_path: Path) -> None:
    content = [
        conversation(("human", "a b"), ("gpt", "c"), ("human", "d e f"), ("gpt", "g h")),
        conversation(("gpt", "nobody asked"), ("human", "no answer")),
        conversation(("human", ""), ("gpt", "x"), ("human", 3), ("gpt", "y")),
    ]
    assert share_gpt(tmp_path, content) == [RequestLengths(2, 1), RequestLengths(3, 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ({}, "does not hold a list"),
        ([{"id": 1}], "has no list 'conversations'"),
        (["text"], "has no list 'conversations'"),
        ([], "holds no question with an answer"),
    ],
)
def test_another_form_is_refused(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        share_gpt(tmp_path, content)


def test_longer_requests_are_left_out_and_counted() -> None:
    lengths = [RequestLengths(3, 4), RequestLengths(30, 4), RequestLengths(5, 5)]
    timed, num_longer = at_times(lengths, all_at_once(), 10)
    assert timed == [TimedRequest(0.0, 3, 4), TimedRequest(0.0, 5, 5)]
    assert num_longer == 1
