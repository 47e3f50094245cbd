"""The replay page: one HTML file that shows a trace, or two, step by step.

The page has the events in it, and rebuilds the engine's state from them in plain JavaScript. Read the modules in
this order: `build` (from traces to a page), `notebook` (the page in an output cell), `figures` (pictures for places
where no script runs). The scripts, in the order in which they are joined: see `build.SCRIPTS`.
"""
