"""`minipaged bench scheduler`: measures the time that a step takes before the model begins."""

from __future__ import annotations

import argparse
import json

from minipaged.cli.arguments import new_file, positive_int
from minipaged.cli.streams import remark, stdout_console

CONTEXTS = (16, 1024, 32_768)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged bench scheduler`."""
    parser.epilog = "Example: minipaged bench scheduler --model smollm2-135m"
    parser.add_argument(
        "--requests", type=positive_int, metavar="N", default=1024, help="running requests (default 1024)"
    )
    parser.add_argument(
        "--num-blocks",
        type=positive_int,
        metavar="N",
        default=2**20,
        help=f"blocks in the pool (default {2**20:,})",
    )
    parser.add_argument(
        "--block-size", type=positive_int, metavar="N", default=64, help="tokens per block (default 64)"
    )
    parser.add_argument(
        "--contexts",
        type=positive_int,
        nargs="+",
        metavar="N",
        default=CONTEXTS,
        help=f"tokens of each request (default {' '.join(map(str, CONTEXTS))})",
    )
    parser.add_argument(
        "--steps", type=positive_int, metavar="N", default=32, help="steps that are measured (default 32)"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="another model besides tiny, to measure steps with a model"
    )
    parser.add_argument(
        "--threads", type=positive_int, metavar="N", help="threads for that model (default: torch's own)"
    )
    parser.add_argument("--out", type=new_file, metavar="FILE.json", help="write all results to a file")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the tables.

    Raises:
        MinipagedError: the pool is too small, or a model cannot be loaded.
    """
    from dataclasses import asdict

    import torch

    from minipaged.bench.scheduler_steps import Pool, measure_steps
    from minipaged.bench.step_shares import measure_share
    from minipaged.view.scheduler_report import scheduler_report

    pool = Pool(args.requests, args.num_blocks, args.block_size, args.steps)
    costs = measure_steps(pool, args.contexts, remark)
    threads = args.threads or torch.get_num_threads()
    shares = []
    # The model `tiny` gets one thread, since its operations end before a second thread could start to help.
    for name, num_threads in {"tiny": 1, **({args.model: threads} if args.model else {})}.items():
        remark(f"a step with {name}")
        shares.append(measure_share(name, num_steps=args.steps, threads=num_threads))
    stdout_console().print(scheduler_report(pool, costs, shares))
    if args.out is not None:
        document = {
            "pool": asdict(pool),
            "steps": [asdict(cost) for cost in costs],
            "shares": [
                asdict(each) | {"share": each.share, "trace_share": each.trace_share} for each in shares
            ],
        }
        args.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0
