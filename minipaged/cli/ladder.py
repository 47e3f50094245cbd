"""`minipaged ladder`: runs one workload at every stage of the engine, and shows the gain of each stage."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from minipaged.choices import DType, LoadFormat
from minipaged.cli.arguments import memory_amount, new_file, positive_int
from minipaged.cli.ladder_setup import MAX_MODEL_LEN, NUM_LONGEST, NUM_REQUESTS, prepare
from minipaged.cli.streams import remark, stderr_console, stdout_console
from minipaged.cli.tracing import add_trace_arguments, tracing_of_stages
from minipaged.stages import NUM_STAGES

if TYPE_CHECKING:
    from minipaged.bench.ladder import WorkloadResult
    from minipaged.bench.stage_run import OnTokens
    from minipaged.sim.workload import Workload

EXIT_DIFFERENT_TOKENS = 1
MAX_REQUESTS = 100_000


def stages(text: str) -> tuple[int, ...]:
    """Parse a list of stages such as `1-8` or `2,5-8`. The result is sorted, each stage once."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            begin = int(first)
            end = int(last) if dash else begin
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list of stages such as 1-8 or 2,5-8"
            ) from None
        if not 1 <= begin <= end <= NUM_STAGES:
            raise argparse.ArgumentTypeError(f"{part!r} is not in range: the stages are 1 to {NUM_STAGES}")
        chosen.update(range(begin, end + 1))
    return tuple(sorted(chosen))


def seed(text: str) -> int:
    """An integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 0")
    return int(text)


def picture(text: str) -> Path:
    """A `new_file` with the file name extension of a picture."""
    path = new_file(text)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"{text!r} must end in .png, .svg or .pdf")
    return path


def num_requests(text: str) -> int:
    """An integer of at least 1. The upper limit keeps the workload's own size within memory."""
    count = positive_int(text)
    if count > MAX_REQUESTS:
        raise argparse.ArgumentTypeError(f"at most {MAX_REQUESTS:,} requests, not {count:,}")
    return count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged ladder`."""
    parser.add_argument(
        "--model",
        default="tiny",
        help="tiny, smollm2-135m, a folder, a .gguf file, or a hub id (default tiny)",
    )
    parser.add_argument(
        "--requests",
        type=num_requests,
        metavar="N",
        default=NUM_REQUESTS,
        help=f"number of requests (default {NUM_REQUESTS})",
    )
    parser.add_argument(
        "--seed", type=seed, metavar="N", default=0, help="another seed draws another workload (default 0)"
    )
    parser.add_argument(
        "--stages",
        type=stages,
        metavar="1-8",
        default=tuple(range(1, NUM_STAGES + 1)),
        help="stages to run, such as 2,5-8 (default 1-8); stage 1 takes the longest",
    )
    pool = parser.add_mutually_exclusive_group()
    pool.add_argument(
        "--num-blocks", type=positive_int, metavar="N", help="KV memory in blocks, including the null block"
    )
    pool.add_argument(
        "--kv-memory",
        type=memory_amount,
        metavar="1MiB",
        help=f"KV memory (default: enough for {NUM_LONGEST} requests of the maximum length)",
    )
    parser.add_argument(
        "--max-model-len",
        type=positive_int,
        metavar="N",
        help="largest number of tokens of prompt and output together; the workload is scaled to it "
        f"(default {MAX_MODEL_LEN}, or less if the model or the KV memory allows less)",
    )
    parser.add_argument(
        "--block-size", type=positive_int, metavar="N", default=16, help="tokens per block (default 16)"
    )
    parser.add_argument("--dtype", choices=get_args(DType), default="auto", help="(default auto)")
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda, cuda:N or mps (experimental) (default auto)",
    )
    parser.add_argument(
        "--load-format",
        choices=get_args(LoadFormat),
        default="auto",
        help="dummy: random weights of the real shape",
    )
    parser.add_argument("--out", type=new_file, metavar="FILE.json", help="write all results to a file")
    parser.add_argument("--plot", type=picture, metavar="FILE.png", help="draw all results into a file")
    add_trace_arguments(parser, each=", one file for each workload and stage")


def run(args: argparse.Namespace) -> int:
    """Run the ladder. Returns 0, or 1 if the stages' tokens differ.

    Raises:
        MinipagedError: the ladder cannot be run with this model or these sizes.
    """
    from minipaged.bench.ladder import LadderResult
    from minipaged.bench.ladder_remarks import remarks
    from minipaged.engine.threads import num_threads
    from minipaged.view.ladder_report import ladder_report

    ladder, workloads = prepare(args)
    decoder = ladder.model.decoder
    remark(
        f"{ladder.num_usable_blocks:,} blocks of {args.block_size} tokens at each stage that has a KV cache. "
        "A paged cache has the null block in addition, so every stage can hold the same number of tokens."
    )
    console, results = stdout_console(), []
    for workload, chosen in workloads:
        with progress(workload) as watch:
            result = ladder.run(workload, chosen, watch, tracing_of_stages(args, workload.name))
        results.append(result)
        console.print(ladder_report(result, remarks(result)))
        console.print()
    whole = LadderResult(
        model=args.model,
        dtype=str(decoder.dtype).removeprefix("torch."),
        device=str(decoder.device),
        num_threads=num_threads(decoder),
        seed=args.seed,
        block_size=args.block_size,
        max_model_len=ladder.max_model_len,
        workloads=tuple(results),
    )
    if args.out is not None:
        args.out.write_text(whole.to_json(), encoding="utf-8")
    if args.plot is not None:
        from minipaged.view.ladder_plot import plot_ladder

        plot_ladder(whole, args.plot)
    return _report_differences(results, whole.dtype)


@contextmanager
def progress(workload: Workload) -> Iterator[Callable[[int], OnTokens]]:
    """Show a progress bar for each stage, in a terminal. Yields a function that starts a stage's bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from minipaged.bench.ladder import STAGE_NAMES

    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:

        def watch(stage: int) -> OnTokens:
            task = bars.add_task(f"{stage} {STAGE_NAMES[stage]}", total=workload.num_output_tokens)
            return lambda num_tokens: bars.update(task, completed=num_tokens)

        yield watch


def _report_differences(results: Sequence[WorkloadResult], dtype: str) -> int:
    different = [result for result in results if result.difference is not None]
    for result in different:
        rounding = "" if dtype == "float32" else f"; in {dtype} this may be rounding: try --dtype float32"
        remark(f"{result.name}: {result.difference}{rounding}")
    return EXIT_DIFFERENT_TOKENS if different else 0
