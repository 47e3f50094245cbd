"""`minipaged simulate`: simulates one system under one load, without a model and without a GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.cli import simulate_calibrate, simulate_fleet, simulate_paper
from minipaged.cli.ladder import picture
from minipaged.cli.simulation_options import (
    add_load,
    add_system,
    make_deployment,
    make_requests,
    replaced_settings,
)
from minipaged.cli.streams import stderr_console, stdout_console
from minipaged.cli.tracing import add_trace_arguments, tracing

if TYPE_CHECKING:
    from minipaged.sim.run import Watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged simulate`, and its subcommands."""
    modes = parser.add_subparsers(metavar="mode", required=False)
    for name, module, text in (
        ("fleet", simulate_fleet, "how many devices a load needs, and how requests are best routed"),
        ("paper", simulate_paper, "the figures of the PagedAttention paper: its numbers beside ours"),
        ("calibrate", simulate_calibrate, "fit the step time to this machine, then predict a held-out load"),
    ):
        mode = modes.add_parser(name, help=text, description=f"{name}: {text}.")
        module.add_arguments(mode)
        mode.set_defaults(run_mode=module.run)
    parser.set_defaults(run_mode=_run_one)

    add_system(parser, default="vllm")
    add_load(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_trace_arguments(parser)
    parser.add_argument("--plot", type=picture, metavar="FILE.png", help="draw the run over time")


def run(args: argparse.Namespace) -> int:
    """Simulate one system, or run the chosen subcommand.

    Raises:
        MinipagedError: a name or a size cannot be simulated.
    """
    return args.run_mode(args)


def _run_one(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from minipaged.sim.run import make_simulation, simulate
    from minipaged.sim.systems import find_system
    from minipaged.view.simulation_report import simulation_report

    system, deployment = find_system(args.system), make_deployment(args)
    requests, count = make_requests(args, deployment.model.max_position_embeddings)
    title = f"{system.title}, {deployment.model.name}, simulated"
    with tracing(args, title) as observer, counting("requests", count) as watch:
        simulation = make_simulation(system, deployment, observer, **replaced_settings(args))
        result = simulate(simulation, requests, watch=watch)
    if args.json:
        settings = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(args).items()
            if not callable(value)
        }
        print(json.dumps({"settings": settings, "result": asdict(result)}, indent=2))
    else:
        stdout_console().print(simulation_report(system, deployment, simulation.manager, result))
    if args.plot is not None:
        from minipaged.view.simulation_plot import plot_simulation

        plot_simulation(result, f"{system.title}, {deployment.model.name}; simulated here", args.plot)
    return 0


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Watch]:
    """Show a progress bar in a terminal. Yields a function that shows the count so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.update(task, completed=count)
