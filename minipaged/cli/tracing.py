"""`--trace FILE`: the commands that run an engine can write its trace."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from minipaged.cli.arguments import new_file
from minipaged.cli.streams import remark

if TYPE_CHECKING:
    from minipaged.events import Observer


def add_trace_arguments(parser: argparse.ArgumentParser, *, each: str = "") -> None:
    """Add `--trace` and `--no-trace-texts`. `each` is a remark for the help if there are several files."""
    group = parser.add_argument_group("trace")
    group.add_argument(
        "--trace",
        type=new_file,
        metavar="FILE",
        help=f"write what the engine does, step by step{each}; compressed if the name ends in .gz "
        "(run.jsonl.gz)",
    )
    group.add_argument(
        "--no-trace-texts", action="store_true", help="leave texts out of the trace: it has token ids only"
    )


@contextmanager
def tracing(args: argparse.Namespace, title: str) -> Iterator[Observer | None]:
    """An observer that writes the trace that the user asked for; `None` if the user asked for none.

    Raises:
        TraceError: the file cannot be written.
    """
    if args.trace is None:
        yield None
        return
    from minipaged.trace.writer import TraceWriter

    with TraceWriter(args.trace, title=title, texts=not args.no_trace_texts) as writer:
        yield writer
    remark(f"The trace is in {args.trace}")


def tracing_of_stages(
    args: argparse.Namespace, workload: str
) -> Callable[[int], AbstractContextManager[Observer | None]]:
    """Like `tracing`, for each stage of a workload. The file's name contains the workload and the stage."""

    def of_stage(stage: int) -> AbstractContextManager[Observer | None]:
        own = argparse.Namespace(**vars(args))
        if args.trace is not None:
            own.trace = name_of_stage(args.trace, workload, stage)
        return tracing(own, f"{workload}, stage {stage}")

    return of_stage


def name_of_stage(path: Path, workload: str, stage: int) -> Path:
    """`run.jsonl.gz` becomes `run-NAME-stage3.jsonl.gz`."""
    stem, dot, suffixes = path.name.partition(".")
    words = re.sub(r"\W+", "-", workload.lower()).strip("-")
    return path.with_name(f"{stem}-{words}-stage{stage}{dot}{suffixes}")
