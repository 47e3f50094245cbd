"""`minipaged replay FILE [FILE2]`: writes one HTML file that shows a recorded run, step by step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from minipaged.cli.streams import remark, stdout_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged replay`."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a trace, as --trace FILE of other commands writes"
    )
    parser.add_argument(
        "other", type=Path, nargs="?", metavar="FILE2", help="a second trace, to be shown beside the first"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PAGE",
        help="where to write the page (default: beside FILE, as in run.html for run.jsonl.gz)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Write the page of one trace or two."""
    from minipaged.errors import TraceError
    from minipaged.trace.page.build import replay_page
    from minipaged.trace.trace import Trace

    paths: list[Path] = [args.file] if args.other is None else [args.file, args.other]
    traces = [Trace.read(path) for path in paths]
    for path, trace in zip(paths, traces, strict=True):
        if trace.num_steps == 0:
            raise TraceError(f"{path} has no step to show")
        if trace.note is not None:
            remark(f"{path}: {trace.note}")
    out: Path = args.out or page_path(args.file)
    refuse_to_replace(paths, out)
    page = replay_page(traces, [trace.title or path.name for path, trace in zip(paths, traces, strict=True)])
    out.write_text(page, encoding="utf-8")
    steps = " and ".join(f"{trace.num_steps:,}" for trace in traces)
    stdout_console().print(f"{out}: {steps} steps, {out.stat().st_size / 1e3:,.0f} kB", soft_wrap=True)
    if args.open:
        open_page(out)
    return 0


def refuse_to_replace(traces: Sequence[Path], page: Path) -> None:
    """Refuse a page that is one of the trace files, by whichever path.

    Raises:
        TraceError: it is.
    """
    from minipaged.errors import TraceError

    if page in traces or (page.exists() and any(page.samefile(each) for each in traces if each.exists())):
        raise TraceError(f"the page {page} would replace the trace: give one of the two another name")


def open_page(page: Path) -> None:
    """Open a page in the user's browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        remark("there is no browser to open it with")


def page_path(trace: Path) -> Path:
    """The page's path next to a trace: `run.html` for `run.jsonl` and for `run.jsonl.gz`."""
    stem = trace.with_suffix("") if trace.suffix == ".gz" else trace
    return stem.with_suffix(".html")
