"""`minipaged simulate`: one system under one load, without a model and without a GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.cli import simulate_calibrate, simulate_paper
from minipaged.cli.arguments import memory_amount, positive_int, share
from minipaged.cli.ladder import picture, seed
from minipaged.cli.streams import remark, stderr_console, stdout_console

if TYPE_CHECKING:
    from minipaged.sim.deployment import Deployment
    from minipaged.sim.lengths import LengthDistribution
    from minipaged.sim.run import Watch
    from minipaged.sim.timed_request import TimedRequest

NUM_REQUESTS = 1000


def positive(text: str) -> float:
    """A number above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def not_negative(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged simulate`, and its two subcommands."""
    modes = parser.add_subparsers(metavar="mode", required=False)
    for name, module, text in (
        ("paper", simulate_paper, "the figures of the PagedAttention paper: its numbers beside ours"),
        ("calibrate", simulate_calibrate, "fit the step time to this machine, then predict a held-out load"),
    ):
        mode = modes.add_parser(name, help=text, description=f"{name}: {text}.")
        module.add_arguments(mode)
        mode.set_defaults(run_mode=module.run)
    parser.set_defaults(run_mode=_run_one)

    system = parser.add_argument_group("system")
    system.add_argument(
        "--system",
        default="vllm",
        help="fastertransformer, orca-max, orca-pow2, orca-oracle, vllm, vllm-swap or minipaged "
        "(default vllm: the paper's)",
    )
    system.add_argument("--model", default="OPT-13B", help="as in `minipaged kv` (default OPT-13B)")
    system.add_argument(
        "--device", default="A100-40GB", help="A100-40GB, A100-80GB, H100 or H200 (default A100-40GB)"
    )
    system.add_argument("--num-devices", type=positive_int, metavar="N", default=1, help="(default 1)")
    system.add_argument(
        "--kv-memory",
        type=memory_amount,
        metavar="12GiB",
        help="memory for the KV cache (default: what 92 %% of the devices' memory leave after the weights)",
    )
    system.add_argument("--block-size", type=positive_int, metavar="N", default=16, help="(default 16)")
    system.add_argument("--max-num-seqs", type=positive_int, metavar="N", default=256, help="(default 256)")
    system.add_argument(
        "--max-num-batched-tokens", type=positive_int, metavar="N", default=2048, help="(default 2048)"
    )
    system.add_argument(
        "--efficiency",
        type=share,
        metavar="SHARE",
        default=1.0,
        help="share of the datasheet's peaks that kernels reach (default 1)",
    )
    system.add_argument(
        "--overhead", type=not_negative, metavar="MS", default=0.0, help="added to each step (default 0)"
    )

    load = parser.add_argument_group("load")
    source = load.add_mutually_exclusive_group()
    source.add_argument(
        "--lengths", choices=("sharegpt", "alpaca"), default="sharegpt", help="(default sharegpt)"
    )
    source.add_argument("--trace", type=Path, metavar="FILE.jsonl", help="arrivals and lengths from a file")
    source.add_argument(
        "--sharegpt", type=Path, metavar="FILE.json", help="lengths from a file of ShareGPT's form"
    )
    load.add_argument(
        "--tokenizer",
        metavar="MODEL",
        default="tiny",
        help="counts the tokens of --sharegpt: tiny, smollm2-135m, a folder or a hub id (default tiny)",
    )
    load.add_argument(
        "--rate", type=positive, metavar="R", default=2.0, help="requests per second (default 2)"
    )
    load.add_argument(
        "--burst",
        type=not_negative,
        metavar="V",
        default=1.0,
        help="variation of the gaps between arrivals: 0 regular, 1 Poisson, 4 in bursts (default 1)",
    )
    load.add_argument(
        "--requests", type=positive_int, metavar="N", default=NUM_REQUESTS, help=f"(default {NUM_REQUESTS:,})"
    )
    load.add_argument(
        "--samples", type=positive_int, metavar="N", default=1, help="samples of each request (default 1)"
    )
    load.add_argument(
        "--prefix-tokens", type=positive_int, metavar="N", default=0, help="shared tokens before each prompt"
    )
    load.add_argument(
        "--prefixes", type=positive_int, metavar="N", default=1, help="different shared prefixes (default 1)"
    )
    load.add_argument("--seed", type=seed, metavar="N", default=0, help="(default 0)")

    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--plot", type=picture, metavar="FILE.png", help="draw the run over time")


def run(args: argparse.Namespace) -> int:
    """Simulate one system, or what the subcommand says.

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
    simulation = make_simulation(
        system,
        deployment,
        block_size=args.block_size,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
    )
    requests, count = make_requests(args, deployment.model.max_position_embeddings)
    with counting("requests", count) as watch:
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


def make_deployment(args: argparse.Namespace) -> Deployment:
    """Model and devices, as the arguments say."""
    from minipaged.loading.shape_lookup import shape_of
    from minipaged.sim.deployment import Deployment
    from minipaged.sim.device import find_device

    return Deployment(
        shape_of(args.model),
        find_device(args.device).at_efficiency(args.efficiency),
        num_devices=args.num_devices,
        kv_cache_bytes=args.kv_memory,
        overhead=args.overhead / 1000,
    )


def make_requests(args: argparse.Namespace, max_model_len: int) -> tuple[Iterator[TimedRequest], int | None]:
    """The requests, and how many there will be if that is known."""
    import numpy as np

    from minipaged.sim.timed_request import bursty, stream
    from minipaged.sim.trace_files import at_times, read_share_gpt, read_trace

    if args.trace is not None:
        return islice(read_trace(args.trace), args.requests), None
    rng = np.random.default_rng(args.seed)
    arrivals = bursty(args.rate, args.burst, rng)
    if args.sharegpt is not None:
        lengths = read_share_gpt(args.sharegpt, token_counter(args.tokenizer))
        timed, num_longer = at_times(lengths[: args.requests], arrivals, max_model_len)
        if num_longer:
            remark(f"{num_longer:,} requests of {args.sharegpt} are left out: longer than {max_model_len:,}")
        return iter(timed), len(timed)
    requests = stream(
        _distribution(args.lengths, max_model_len),
        arrivals,
        rng,
        num_requests=args.requests,
        num_samples=args.samples,
        num_prefix_tokens=args.prefix_tokens,
        num_prefixes=args.prefixes,
    )
    return requests, args.requests


def _distribution(name: str, max_model_len: int) -> LengthDistribution:
    """The lengths of a data set, cut at the model's context and not scaled to it."""
    from dataclasses import replace

    from minipaged.sim.lengths import ALPACA, SHAREGPT

    chosen = SHAREGPT if name == "sharegpt" else ALPACA
    return replace(chosen, max_model_len=min(chosen.max_model_len, max_model_len))


def token_counter(model: str) -> Callable[[str], int]:
    """Counts the tokens of a text, by a model's tokenizer.

    Raises:
        ConfigError: the model has none.
    """
    from minipaged.errors import ConfigError
    from minipaged.loading.loader import load_tokenizer

    tokenizer = load_tokenizer(model)
    if tokenizer is None:
        raise ConfigError(f"{model} has no tokenizer")
    return lambda text: len(tokenizer.encode(text))


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Watch]:
    """Show a progress bar in a terminal. Yields a function that is told the count so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.update(task, completed=count)
