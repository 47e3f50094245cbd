"""The replay page: one HTML file that shows a trace, or two, step by step.

The page contains the events, and rebuilds the engine's state from them in plain JavaScript. Read the modules
in this order: `build` (from traces to a page), `notebook` (the page in an output cell), `figures` (pictures
for places where no script runs). The scripts are joined in the order of `build.SCRIPTS`; `state.js` does in
JavaScript what `trace/replay.py` does, and `run.js` finds the state at any step.
"""

from minipaged.trace.page.build import replay_page
from minipaged.trace.page.notebook import show

__all__ = ["replay_page", "show"]
