"""Moving through a run: slider, buttons, keys, the address; two runs in step and in time."""

from __future__ import annotations

import pytest

from minipaged import LLM, SamplingParams
from minipaged.choices import Batching, PreemptionMode
from minipaged.events import Event, RequestAdded
from minipaged.trace.page.build import replay_page
from minipaged.trace.trace import Trace
from tests.trace.page.conftest import OpenPage
from tests.trace.page.shown import assert_shows

PROMPTS = ["The sea was calm and the", "The sea was calm and a boat", "Once upon a time", "A cat"]


_COLOURS = """([text, paper]) => [
  getComputedStyle(document.querySelector(text)).color,
  getComputedStyle(document.querySelector(paper)).backgroundColor,
]"""


@pytest.fixture(scope="module")
def runs() -> tuple[Trace, Trace]:
    """One workload at two stages: static batches without preemption, and continuous ones with it."""
    return _run("continuous", "recompute"), _run("static", "never")


def _run(batching: Batching, preemption_mode: PreemptionMode) -> Trace:
    events: list[Event] = []
    llm = LLM(
        "tiny",
        block_size=4,
        num_blocks=20,
        max_model_len="auto",
        max_num_batched_tokens=32,
        batching=batching,
        preemption_mode=preemption_mode,
        observer=events.append,
    )
    llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True))
    return Trace.of(events, title=batching)


def test_slider_buttons_and_keys_move_the_page(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    trace, _ = runs
    last = trace.num_steps
    page = open_page([trace])

    def at(step: int) -> None:
        page.wait_for_function("step => replay.step() === step", arg=step)
        assert_shows(page, trace.at(step))

    at(0)
    slider = page.get_by_label("Step", exact=True)
    slider.fill("7")
    at(7)
    page.get_by_label("Step forward").click()
    at(8)
    page.get_by_label("Step back").click()
    at(7)
    page.get_by_label("Last step").click()
    at(last)
    page.get_by_label("First step").click()
    at(0)
    page.locator("h1").click()
    for key, step in [("ArrowRight", 1), ("ArrowRight", 2), ("Shift+ArrowRight", 12), ("ArrowLeft", 11)]:
        page.keyboard.press(key)
        at(step)
    page.keyboard.press("End")
    at(last)
    page.keyboard.press("Home")
    at(0)
    page.get_by_label("Speed").select_option("30")
    page.locator("h1").click()
    page.keyboard.press(" ")
    assert page.get_by_label("Pause").is_visible()
    at(last)
    assert page.get_by_label("Play", exact=True).is_visible()  # it stops at the end


def test_a_moment_is_in_the_address_and_can_be_linked(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    trace, _ = runs
    page = open_page([trace], "#step=5")
    assert_shows(page, trace.at(5))
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash === '#step=6'")
    page.evaluate("() => { location.hash = '#step=3'; }")
    page.wait_for_function("() => replay.step() === 3")
    assert_shows(page, trace.at(3))
    page.evaluate("() => { location.hash = '#step=999999999'; }")
    page.wait_for_function(f"() => replay.step() === {trace.num_steps}")


def test_the_keyboard_alone_reaches_every_control(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    page = open_page([runs[0]], "#step=4")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas, [tabindex]")]
          .filter((each) => !each.getAttribute("aria-label"))
          .filter((each) => !each.labels?.length && !each.textContent.trim())
          .map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    reached: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"
            )
        )
    assert {"First step", "Play", "Step", "speed", "theme", "Block pool", "Zoom in"} <= reached
    assert "Block tables: logical to physical blocks" in reached
    page.get_by_role("application").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.locator(".inspector .aside").inner_text() == "block 3"
    assert page.evaluate("() => replay.step()") == 4  # the arrow keys were the pool's
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowRight")
    chosen = page.locator(".entry.chosen").first.inner_text()
    assert page.locator(".inspector .aside").inner_text() == f"block {chosen}"


def test_a_step_in_a_block_s_history_leads_there(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    page = open_page([runs[0]], "#step=4")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    link = page.locator(".history button").last
    step = int(link.inner_text().removeprefix("step "))
    link.click()
    page.wait_for_function("step => replay.step() === step", arg=step)


def test_a_click_on_a_text_chooses_the_token_there(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    trace, _ = runs
    page = open_page([trace], "#step=4")
    added = next(event for event in trace.events if isinstance(event, RequestAdded))
    page.locator(".texts-panel").scroll_into_view_if_needed()
    text = "".join(added.prompt_texts)
    for at in range(0, len(text), 5):
        # The middle of a character, wherever the prompt is cut into parts.
        where = page.evaluate(
            """(at) => {
              for (const part of document.querySelector(".prompt").querySelectorAll(".tokens")) {
                const node = part.firstChild;
                if (at >= node.length) { at -= node.length; continue; }
                const range = document.createRange();
                range.setStart(node, at);
                range.setEnd(node, at + 1);
                const box = range.getBoundingClientRect();
                return [box.left + box.width / 4, box.top + box.height / 2];
              }
            }""",
            at,
        )
        page.mouse.click(*where)
        position = int(page.get_by_label("Position").input_value())
        before = len("".join(added.prompt_texts[:position]))
        assert before <= at < before + len(added.prompt_texts[position])


def test_two_runs_are_shown_in_step_and_in_time(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    page = open_page(runs, "#step=9")
    for number, trace in enumerate(runs):
        assert_shows(page, trace.at(9), number)
    assert page.locator(".run-head h2").all_inner_texts() == ["continuous", "static"]
    page.get_by_label("Compare").select_option("time")
    ends = [_ends(trace) for trace in runs]
    moments = sorted({0.0, *ends[0], *ends[1]})
    for position in (0, 5, 17, len(moments) - 1):
        page.evaluate("position => { replay.draw(position); }", position)
        for number, trace in enumerate(runs):
            num_ended = sum(end <= moments[position] + 1e-9 for end in ends[number])
            assert_shows(page, trace.at(num_ended), number)
    page.wait_for_function("() => location.hash.startsWith('#time=')")
    page.evaluate("() => { replay.draw(20); }")
    page.get_by_label("Compare").select_option("step")
    page.wait_for_function("() => replay.step(0) === replay.step(1)")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(
    runs: tuple[Trace, Trace], open_page: OpenPage, width: int, scheme: str
) -> None:
    for traces in (runs[:1], runs):
        page = open_page(traces, "#step=9")
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        assert _contrast(*page.evaluate(_COLOURS, ["html", "html"])) >= 7
        assert _contrast(*page.evaluate(_COLOURS, [".aside", ".panel"])) >= 4.5
        page.close()


def test_a_printed_page_has_all_rows_of_the_tables(runs: tuple[Trace, Trace], open_page: OpenPage) -> None:
    page = open_page([runs[0]], "#step=9")
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert not page.locator(".buttons").is_visible()


def test_a_page_needs_nothing_from_elsewhere(runs: tuple[Trace, Trace]) -> None:
    page = replay_page(runs)
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in page
    assert "default-src 'none'" in page


def _ends(trace: Trace) -> list[float]:
    """When each step ended, in seconds since the first request arrived."""
    start = next(event.time for event in trace.events if isinstance(event, RequestAdded))
    return [trace.at(step).time - start for step in range(1, trace.num_steps + 1)]


def _contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2 between two colours as `rgb(…)`."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(each) / 255 for each in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
