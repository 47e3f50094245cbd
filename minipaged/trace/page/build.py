"""Makes one HTML file from traces. The file needs nothing else.

All texts of a trace are in the page as JSON, in elements that the browser does not run, with `<` escaped. So
no text can end its element or begin another element.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from minipaged.errors import TraceError
from minipaged.events import TokenSampled
from minipaged.trace.codec import encode
from minipaged.trace.trace import Trace

SCRIPTS = (
    "steps",  # the traces in the page, by steps
    "state",  # the engine's state
    "changes",  # what each event changes in it
    "slots",  # what each slot is used for
    "colours",
    "dom",
    "run",  # one pass through a whole trace, and the state at any step
    "words",  # an event in words
    "cell",  # a cell of the pool
    "pool",
    "strip",  # the pool of a contiguous cache
    "inspector",  # one block
    "tables",  # block tables
    "slot",  # from a token to its slot
    "step",  # budget, queues, events
    "axis",
    "timeline",
    "charts",
    "texts",
    "view",  # one run: all parts above
    "player",
    "main",
)
"""The page's scripts, in the order in which they are joined."""

MOST_TRACES = 2


def replay_page(traces: Sequence[Trace], names: Sequence[str] = ()) -> str:
    """The page that replays one trace, or two side by side.

    Args:
        traces: one or two.
        names: the name to show for each trace; by default its title.

    Returns:
        A whole HTML document. It contains letters outside ASCII as they are, so write it in UTF-8.

    Raises:
        TraceError: there are no traces, or more than two.
    """
    if not 1 <= len(traces) <= MOST_TRACES:
        raise TraceError(f"a page replays one trace or two, not {len(traces)}")
    given = [*names, *[""] * len(traces)]
    called = [name or trace.title or "trace" for name, trace in zip(given, traces, strict=False)]
    page = Template(_read("page.html")).substitute(
        title=html.escape(f"{' and '.join(called)}: minipaged replay"),
        style=_read("page.css"),
        traces="\n".join(_element(trace, name) for trace, name in zip(traces, called, strict=True)),
        script="\n".join(_read(f"{name}.js") for name in SCRIPTS),
    )
    # UTF-8 cannot encode half of a surrogate pair. In JSON, an escape means the same.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _element(trace: Trace, name: str) -> str:
    """The events of a trace as an element of the page."""
    texts = any(isinstance(event, TokenSampled) and event.text for event in trace.events)
    data = {
        "name": name,
        "remark": trace.note,
        "texts": texts,
        "engine": encode([trace.engine])[0],
        "events": encode(trace.events, texts=texts),
    }
    # In a script element nothing is an entity, and only "<" can end it. In JSON, "<" occurs only inside
    # strings.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" class="trace">{text}</script>'


def _read(name: str) -> str:
    return files("minipaged.trace.page").joinpath(name).read_text(encoding="utf-8")
