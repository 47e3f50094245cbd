"""`minipaged simulate paper`: simulates figures of the PagedAttention paper, and shows its numbers, too."""

from __future__ import annotations

import argparse
import json

from minipaged.cli.arguments import positive_int, share
from minipaged.cli.ladder import picture, seed
from minipaged.cli.streams import remark, stdout_console

NUM_REQUESTS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged simulate paper`."""
    parser.add_argument(
        "figures",
        nargs="*",
        metavar="FIGURE",
        default=["all"],
        help="fig2, fig12, fig13, fig14, fig15, fig16, fig17, fig18b, fig19 or all (default all)",
    )
    parser.add_argument(
        "--requests",
        type=positive_int,
        metavar="N",
        default=NUM_REQUESTS,
        help=f"requests that each number is measured with (default {NUM_REQUESTS:,})",
    )
    parser.add_argument(
        "--efficiency",
        type=share,
        metavar="SHARE",
        default=1.0,
        help="share of the datasheet's peaks that kernels reach (default 1)",
    )
    parser.add_argument("--seed", type=seed, metavar="N", default=0, help="(default 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--plot", type=picture, metavar="FILE.png", help="draw the figures into a file")


def run(args: argparse.Namespace) -> int:
    """Simulate the figures, one after another.

    Raises:
        ConfigError: a figure is not simulated.
    """
    from dataclasses import asdict

    from minipaged.sim.paper.figures import FIGURES, find_figure
    from minipaged.sim.paper.setting import Setting
    from minipaged.view.paper_report import paper_report

    setting = Setting(args.requests, args.seed, args.efficiency, remark)
    names = list(FIGURES) if "all" in args.figures else args.figures
    made = []
    for figure in [find_figure(name) for name in names]:
        result = figure(setting)
        made.append(result)
        if not args.json:
            stdout_console().print(paper_report(result))
    if args.json:
        print(json.dumps([asdict(result) for result in made], indent=2))
    if args.plot is not None:
        from minipaged.view.paper_plot import plot_paper

        plot_paper(made, args.plot)
    return 0
