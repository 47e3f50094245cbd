"""A real browser for the replay page: Chromium, driven by Playwright. Without one these tests skip."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minipaged.trace.page.build import replay_page
from minipaged.trace.trace import Trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window. Its driver has an event loop, which tests of other rooms must not find."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        # As root, Chromium has no sandbox of its own.
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """Opens a page of traces from a file. A page must not report an error, nor ask for anything elsewhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    wrong: list[str] = []
    requested: list[str] = []

    def opened(traces: Sequence[Trace], fragment: str = "", names: Sequence[str] = ()) -> Page:
        path = tmp_path / "page.html"
        path.write_text(replay_page(traces, names), encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_function("() => window.replay")
        return page

    yield opened
    context.close()
    assert wrong == []
    assert all(url.startswith(tmp_path.as_uri()) for url in requested)
