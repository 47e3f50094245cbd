"""`minipaged check N`: run the tests of a chapter or an exercise."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from minipaged.cli.streams import remark, stdout_console
from minipaged.cli.waiting import shown_meanwhile

if TYPE_CHECKING:
    from pathlib import Path

EXIT_NOT_PASSED = 1
_SECONDS_BETWEEN_LOOKS = 0.4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged check`."""
    parser.add_argument("number", metavar="N", help="a chapter, as in 4, or an exercise, as in 4.2")
    parser.add_argument(
        "--impl",
        metavar="WHOSE",
        help="whose code: mine, solutions, engine, or a folder (default: MINIPAGED_IMPL, or mine)",
    )
    parser.add_argument("--watch", action="store_true", help="check again whenever the file is saved")


def run(args: argparse.Namespace) -> int:
    """Check, and show the report. Returns 0 if everything passes, otherwise 1."""
    passed = _check(args.number, args.impl, warm=args.watch)
    if args.watch:
        from minipaged.course import registry
        from minipaged.course.chapter import chapter_of
        from minipaged.course.checks import default_impl
        from minipaged.course.implementation import implementation

        number = chapter_of(args.number) if "." in args.number else int(args.number)
        path = implementation(registry.chapter(number), args.impl or default_impl()).path
        while True:
            remark(f"Watching {path.name}; Ctrl-C ends this.")
            _wait_for_change(path)
            passed = _check(args.number, args.impl, warm=args.watch)
    return 0 if passed else EXIT_NOT_PASSED


def _check(number: str, impl: str | None, *, warm: bool) -> bool:
    from minipaged.course.checks import check_numbered

    with shown_meanwhile() as look:
        report = check_numbered(number, impl, warm=warm, look=look)
    stdout_console().print(report)
    if report.remark:
        remark(report.remark)
    return report.passed


def _wait_for_change(path: Path) -> None:
    before = _signature(path)
    while _signature(path) == before:
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:  # while an editor saves by renaming
        return None
    return status.st_mtime_ns, status.st_size
