"""Texts of a trace are texts on the page, whatever is in them."""

from __future__ import annotations

import json

import pytest

from minipaged.errors import TraceError
from minipaged.events import (
    BlocksReleased,
    BlocksTaken,
    EngineStarted,
    Event,
    RequestAdded,
    RequestAdmitted,
    RequestFinished,
    SequenceFinished,
    StepExecuted,
    StepFinished,
    StepPlanned,
    TokenSampled,
)
from minipaged.trace.page.build import replay_page
from minipaged.trace.trace import Trace
from tests.trace.page.conftest import OpenPage
from tests.trace.page.shown import go_to

ENGINE = EngineStarted(
    model="<b>tiny</b>", stage=8, kv_layout="paged", block_size=4, num_blocks=8, num_cpu_blocks=0,
    max_model_len=16, max_num_seqs=4, max_num_batched_tokens=8, enable_chunked_prefill=True,
    enable_prefix_caching=False, scheduling_policy="fcfs", preemption_mode="recompute", batching="continuous",
    fork_mode="share", reserve="max", region_allocator="first_fit",
)  # fmt: skip

HOSTILE = {
    "a script's end": "</script><script>alert(1)</script>",
    "a comment": "<!-- <script> --!> ]]> <![CDATA[",
    "quotes": "\"'`${alert(1)}\\",
    "entities": "&lt;img src=x onerror=alert(1)&gt;<img src=x onerror=alert(1)>",
    "direction": "\u202egnihtyna\u202c \u2066 \u2069\u200f",
    "line ends": "\r\n\u2028\u2029\x85\t\x00\x07",
    "half a pair": "\ud83d and \ude00",
    "a template": "$title $traces ${style}",
}


def trace_of(text: str, *, request_id: str = "a") -> Trace:
    """A request whose one prompt token and one output token are this text."""
    events: list[Event] = [
        RequestAdded(request_id, 0, 0.0, (5, 6), (text, text), 2, 1, False, 0, None, (0, 0)),
        RequestAdmitted(request_id, 0),
        BlocksTaken(0, (1,)),
        StepPlanned(1, 0.1, 0.2, (0,), (0,), (2,)),
        StepExecuted(0.3),
        TokenSampled(0, 7, text),
        SequenceFinished(0, "stop", text),
        BlocksReleased(0, (1,)),
        RequestFinished(request_id, 0.4),
        StepFinished(1, 0.4, 0, 0, 0, 7),
    ]
    return Trace(ENGINE, events, title=text[:1000])


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_stays_a_text(open_page: OpenPage, text: str) -> None:
    page = open_page([trace_of(text, request_id=text)])
    num_elements = page.evaluate("() => document.querySelectorAll('script, img, iframe, b > *').length")
    go_to(page, 1)
    assert (
        page.evaluate("() => document.querySelectorAll('script, img, iframe, b > *').length")
        == num_elements
        == 2
    )
    # Half of a surrogate pair does not survive the way to the browser: it goes there as an escape.
    shown = page.evaluate(
        """(escaped) => {
          const text = JSON.parse(escaped), read = (name) => document.querySelector(name).textContent;
          return [read(".output") === text, read(".tokens") === text + text];
        }""",
        json.dumps(text),
    )
    assert shown == [True, True]


def test_a_megabyte_in_one_token_is_cut_and_said_to_be(open_page: OpenPage) -> None:
    page = open_page([trace_of("x" * 1_000_000)])
    go_to(page, 1)
    shown = page.locator(".output").text_content() or ""
    assert len(shown) < 20_000
    assert "characters" in shown
    assert "characters more" in (page.locator(".tokens").first.text_content() or "")


def test_marks_that_turn_the_direction_are_written_out_in_names(open_page: OpenPage) -> None:
    page = open_page([trace_of("x", request_id="a\u202eb\u2069c")])
    go_to(page, 1)
    assert page.locator(".text h3 bdi").text_content() == "a\\u202eb\\u2069c"


def test_a_page_is_ascii_markup_around_escaped_json() -> None:
    page = replay_page([trace_of("</script>")], ["<i>one</i>"])
    assert "<title>&lt;i&gt;one&lt;/i&gt;: minipaged replay</title>" in page
    data = page.split('class="trace">')[1].split("</script>")[0]
    assert "<" not in data


def test_a_page_has_one_trace_or_two() -> None:
    trace = trace_of("x")
    for traces in ([], [trace] * 3):
        with pytest.raises(TraceError, match="one trace or two"):
            replay_page(traces)
