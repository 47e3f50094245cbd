"""`minipaged bench throughput`: measures output tokens per second, and compares them with other engines."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, cast

from minipaged.bench.throughput.contestants import (
    PEER_NAMES,
    PYTHON_OF,
    Contestant,
    PeerName,
    our_engine,
    peer,
)
from minipaged.cli.arguments import new_file, positive_int
from minipaged.cli.streams import remark, stdout_console
from minipaged.errors import ConfigError
from minipaged.stages import NUM_STAGES

if TYPE_CHECKING:
    from minipaged.bench.throughput.results import ThroughputResult

WORKLOADS = ("W1", "W2", "W3")
REPEATS = 3
LIMIT_SECONDS = 900
EXIT_FAILED = 1


def peers(text: str) -> tuple[PeerName, ...]:
    """Names of engines, separated by commas. Repeated names count once."""
    names = tuple(dict.fromkeys(part for part in text.split(",") if part))
    unknown = [name for name in names if name not in PEER_NAMES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of engines: there are {', '.join(PEER_NAMES)}"
        )
    return cast("tuple[PeerName, ...]", names)


def interpreter(text: str) -> tuple[str, str]:
    """Parse the name and the interpreter of an engine, as in `vllm=/path/to/bin/python`."""
    name, equals, path = text.partition("=")
    names = sorted(set(PYTHON_OF.values()))
    if not equals or name not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON, with NAME one of {', '.join(names)}")
    found = shutil.which(os.path.expanduser(path))
    if found is None:
        raise argparse.ArgumentTypeError(f"{path!r} is not a program that can be run")
    # Links are not resolved: a virtual environment's interpreter is a link, and Python finds the environment
    # by the path of the link.
    return name, os.path.abspath(found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged bench throughput`."""
    parser.epilog = (
        "Example: minipaged bench throughput --workload W1 W2 --against hf,vllm "
        "--python vllm=~/vllm/bin/python"
    )
    parser.add_argument(
        "--model", default="smollm2-135m", help="a model as in `minipaged generate` (default smollm2-135m)"
    )
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=WORKLOADS,
        default=WORKLOADS,
        help="W1: one request; W2: 32 of mixed lengths; W3: 32 with one shared prefix (default all)",
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="(default float32)"
    )
    parser.add_argument(
        "--stage",
        type=int,
        choices=range(1, NUM_STAGES + 1),
        metavar=f"1-{NUM_STAGES}",
        help="our engine as it is after that chapter (default: the complete engine)",
    )
    parser.add_argument(
        "--against", type=peers, metavar="NAMES", default=(), help=f"other engines: {','.join(PEER_NAMES)}"
    )
    parser.add_argument(
        "--repeats", type=positive_int, metavar="N", default=REPEATS, help=f"runs of each (default {REPEATS})"
    )
    parser.add_argument(
        "--threads", type=positive_int, metavar="N", help="threads of each engine (default: one for each CPU)"
    )
    parser.add_argument(
        "--python",
        type=interpreter,
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="a Python interpreter that can import hf, vllm or llama.cpp (default: this one)",
    )
    parser.add_argument(
        "--limit",
        type=positive_int,
        metavar="SECONDS",
        default=LIMIT_SECONDS,
        help=f"time limit for loading and for each run (default {LIMIT_SECONDS})",
    )
    parser.add_argument("--out", type=new_file, metavar="FILE.json", help="write all results to a file")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark, and print the tables.

    Returns:
        0; or 1 if our own engine failed.

    Raises:
        MinipagedError: the benchmark cannot be run.
    """
    from minipaged.bench.throughput.child import refuse_without_job_control
    from minipaged.bench.throughput.match import Rules
    from minipaged.bench.throughput.run import Plan, run_throughput
    from minipaged.view.throughput_report import throughput_report

    refuse_without_job_control()
    threads = _threads(args.threads)
    plan = Plan(
        model=args.model,
        dtype=args.dtype,
        workloads=tuple(dict.fromkeys(args.workload)),
        contestants=_contestants(args.against, dict(args.python), threads),
        threads=threads,
        stage=args.stage,
        rules=Rules(args.repeats, load_limit=args.limit, run_limit=args.limit),
    )
    with _terminated_like_interrupted():
        result = run_throughput(plan, remark)
    stdout_console().print(throughput_report(result))
    if args.out is not None:
        args.out.write_text(result.to_json(), encoding="utf-8")
    return EXIT_FAILED if _ours_failed(result) else 0


def _contestants(
    names: tuple[PeerName, ...], pythons: dict[str, str], threads: int
) -> tuple[Contestant, ...]:
    others = [
        peer(name, threads, pythons[PYTHON_OF[name]]) if PYTHON_OF[name] in pythons else peer(name, threads)
        for name in names
    ]
    return (our_engine(threads), *others)


def _threads(asked: int | None) -> int:
    from minipaged.engine.machine import usable_cpus

    cpus = usable_cpus()
    if asked is not None and asked > cpus:
        raise ConfigError(f"--threads {asked} is more than the {cpus} CPUs here: ask for fewer")
    return cpus if asked is None else asked


def _ours_failed(result: ThroughputResult) -> bool:
    return any(workload.ours is None for workload in result.workloads)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Within the `with` block, SIGTERM ends the contestants' processes, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
