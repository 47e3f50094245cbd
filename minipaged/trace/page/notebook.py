"""Shows a trace in a notebook: the page in an output cell, and two pictures for places where no script
runs."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

from minipaged.errors import TraceError
from minipaged.trace.page.build import replay_page
from minipaged.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 760
"""The height of the page within the output cell, in pixels."""


def show(trace: Trace, other: Trace | None = None, *, height: int = HEIGHT) -> None:
    """Show the replay page below the cell, and pictures of the requests and the pool below it.

    Args:
        trace: the run.
        other: a second run, to be shown next to the first.
        height: the height of the page, in pixels.

    Raises:
        TraceError: `trace` or `other` is no `Trace`, or the events contradict each other.
    """
    from IPython.display import HTML, display

    from minipaged.trace.page.figures import draw_pool, draw_timeline

    traces = [trace] if other is None else [trace, other]
    for each in traces:
        if not isinstance(each, Trace):
            raise TraceError(f"show takes a trace, as in show(Trace.read('run.jsonl.gz')), not {each!r:.80}")
    # The frame keeps the page's style and scripts away from the notebook.
    page = html.escape(replay_page(traces), quote=True)
    frame = (
        f'<div><iframe title="minipaged replay" sandbox="allow-scripts" srcdoc="{page}" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe></div>'
    )
    display(HTML(frame))
    for each in traces:
        steps = f"{each.num_steps:,} steps" + (f" of {each.title}" if each.title else "")
        _show_figure(draw_timeline(each), f"Timeline of the requests over {steps}.")
        if each.engine.kv_layout != "none":
            _show_figure(draw_pool(each), f"Use of the slots of the KV cache over {steps}.")


def _show_figure(made: Figure, alt: str) -> None:
    from IPython.display import display

    png = io.BytesIO()
    made.savefig(png, format="png")
    source = base64.b64encode(png.getvalue()).decode("ascii")
    picture = f'<img alt="{html.escape(alt, quote=True)}" src="data:image/png;base64,{source}">'
    display({"text/html": picture, "image/png": source, "text/plain": alt}, raw=True)
