"""The page in an output cell, and the pictures beside it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from IPython.display import HTML

from minipaged.events import Event
from minipaged.loading.loader import LoadedModel
from minipaged.trace.page import show
from minipaged.trace.page.figures import MOST_REQUESTS, draw_pool, draw_timeline
from minipaged.trace.trace import Trace
from tests.engine.test_histories import live_one_history
from tests.trace.page.long_trace import long_trace
from tests.trace.page.test_build import HOSTILE, trace_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was displayed below the cell."""
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda each, **_: shown.append(each))
    return shown


def test_a_cell_has_the_page_and_two_pictures(displayed: list[Any]) -> None:
    show(trace_of("x"))
    page, timeline, pool = displayed
    assert isinstance(page, HTML)
    for picture in (timeline, pool):
        assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
        assert picture["text/plain"] in picture["text/html"]


def test_the_page_works_in_a_frame_of_a_notebook(displayed: list[Any], browser: Browser) -> None:
    show(trace_of(HOSTILE["entities"]), trace_of(HOSTILE["quotes"]))
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(str(displayed[0].data))
    frame = page.frame_locator("iframe")
    frame.get_by_label("Last step").click()
    frame.locator(".now", has_text="step 1 of 1").wait_for()
    assert frame.locator(".output").first.inner_text() == HOSTILE["entities"]
    page.wait_for_timeout(300)  # the address is written a moment later, and a frame has none
    assert errors == []
    page.close()


def test_every_layout_has_its_pictures(nano_model: LoadedModel) -> None:
    for seed in range(20):
        events: list[Event] = []
        live_one_history(nano_model, seed, events.append)
        trace = Trace.of(events)
        rows = draw_timeline(trace).axes[0].get_yticklabels()
        assert [row.get_text() for row in rows] == list(dict.fromkeys(trace.request_ids()))
        if trace.engine.kv_layout != "none" and trace.num_steps:
            [axes] = draw_pool(trace).axes
            assert axes.get_ylim()[1] >= trace.waste()[0].slots.num_slots


def test_a_long_run_s_timeline_says_what_it_leaves_out() -> None:
    trace = long_trace(60, 4000)
    assert len(trace.request_ids()) > MOST_REQUESTS
    title = draw_timeline(trace).axes[0].get_title(loc="left")
    assert f"the first {MOST_REQUESTS} of {len(trace.request_ids())}" in title


def test_a_request_s_name_is_no_mathematics() -> None:
    draw_timeline(trace_of("x", request_id="$\\frac{$\n")).canvas.draw()
