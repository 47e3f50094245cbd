"""`minipaged bench gpu --out FILE.json`: checks the kernels on a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

EXIT_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged bench gpu`."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="file for all figures")
    parser.add_argument(
        "--rehearse", action="store_true", help="run on a CPU at toy sizes: the figures mean nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Run the check, and print a line for each part.

    Returns:
        0; or 1 if a part failed.

    Raises:
        ConfigError: there is no GPU for a run that is not a rehearsal, or Triton is missing.
    """
    from minipaged.bench.gpu import format_table, run_gpu_check

    records = run_gpu_check(args.out, rehearse=args.rehearse)
    print(format_table(records))
    return EXIT_FAILED if any(record.failed for record in records) else 0
