"""`minipaged bench`: measures a part of the engine."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from minipaged.cli.main import CommandModule


@dataclass(frozen=True)
class Benchmark:
    """A subcommand of `minipaged bench`: its name, its module, and one line of help."""

    name: str
    module: str
    help: str


BENCHMARKS = (
    Benchmark(
        "throughput",
        "minipaged.cli.bench_throughput",
        "output tokens per second, compared with other engines that are installed",
    ),
    Benchmark(
        "scheduler",
        "minipaged.cli.bench_scheduler",
        "the time of a step before the model begins: scheduler, pool, input",
    ),
    Benchmark(
        "kernel",
        "minipaged.cli.bench_kernel",
        "the GPU resources that the attention kernels need: registers, spills, shared memory",
    ),
    Benchmark(
        "gpu",
        "minipaged.cli.bench_gpu",
        "whether the kernels are right on this GPU, and how fast they are",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged bench`: its subcommands, each with its own arguments."""
    subparsers = parser.add_subparsers(metavar="benchmark", required=True)
    for benchmark in BENCHMARKS:
        subparser = subparsers.add_parser(
            benchmark.name, help=benchmark.help, description=f"{benchmark.name}: {benchmark.help}."
        )
        module = cast("CommandModule", importlib.import_module(benchmark.module))
        module.add_arguments(subparser)
        subparser.set_defaults(run_benchmark=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the chosen benchmark, and return its exit code."""
    return args.run_benchmark(args)
