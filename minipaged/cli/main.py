"""The command `minipaged`: finds the subcommand's module, and turns errors into one line.

A subcommand is a module with `add_arguments(parser)` and `run(args) -> int`. Only the chosen subcommand's
module is imported, and it imports torch only inside `run`. So `--help` answers at once.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, cast

from minipaged import __version__
from minipaged.errors import MinipagedError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 1  # as in rich and in the Python manual


class CommandModule(Protocol):
    """The interface of a subcommand's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        """Run the subcommand, and return the exit code."""
        ...


@dataclass(frozen=True)
class Command:
    """A subcommand: its name, its module, one line of help, and an example."""

    name: str
    module: str
    help: str
    example: str

    def load(self) -> CommandModule:
        return cast(CommandModule, importlib.import_module(self.module))


COMMANDS = (
    Command(
        "demo",
        "minipaged.cli.demo",
        "serve eight prompts through a small pool, and watch its blocks",
        "minipaged demo --model smollm2-135m",
    ),
    Command(
        "generate",
        "minipaged.cli.generate",
        "complete one or more prompts",
        'minipaged generate "The capital of France is" --model smollm2-135m --max-tokens 24',
    ),
    Command(
        "chat",
        "minipaged.cli.chat",
        "talk to a model; each turn shows how much of it came from the prefix cache",
        "minipaged chat --model smollm2-135m",
    ),
    Command(
        "kv",
        "minipaged.cli.kv",
        "how large a model's KV cache is, and how many requests fit",
        "minipaged kv Llama-3.1-8B --memory 24GiB",
    ),
    Command(
        "ladder",
        "minipaged.cli.ladder",
        "run one workload at every stage of the engine, and show the gain of each stage",
        "minipaged ladder --requests 16 --stages 2-8",
    ),
    Command(
        "replay",
        "minipaged.cli.replay",
        "a page that shows a recorded run step by step, or two runs side by side",
        "minipaged replay run.jsonl.gz --open",
    ),
    Command(
        "simulate",
        "minipaged.cli.simulate",
        "serve a load on paper: the real scheduler and pool, and a cost model in place of a GPU",
        "minipaged simulate --system orca-oracle --rate 2",
    ),
    Command(
        "bench",
        "minipaged.cli.bench",
        "measure a part of the engine",
        "minipaged bench kernel --compile-only",
    ),
    Command(
        "doctor",
        "minipaged.cli.doctor",
        "whether the engine can run here: versions, devices, Triton, models",
        "minipaged doctor",
    ),
    Command(
        "next",
        "minipaged.cli.next",
        "the course: the exercise to do next",
        "minipaged next",
    ),
    Command(
        "check",
        "minipaged.cli.check",
        "the course: run the tests of a chapter or an exercise",
        "minipaged check 4.2 --watch",
    ),
    Command(
        "hint",
        "minipaged.cli.hint",
        "the course: the next of an exercise's three hints",
        "minipaged hint 4.2",
    ),
    Command(
        "solution",
        "minipaged.cli.solution",
        "the course: an exercise's worked solution; asks before it shows one that you have not solved",
        "minipaged solution 4.2",
    ),
    Command(
        "reset",
        "minipaged.cli.reset",
        "the course: restore a chapter's exercise file; your version is kept under another name",
        "minipaged reset 4",
    ),
    Command(
        "progress",
        "minipaged.cli.progress",
        "the course: what is done, what is wrong, and what is left",
        "minipaged progress",
    ),
    Command(
        "incident",
        "minipaged.cli.incident",
        "the course: a run with one thing wrong, to be found from its trace",
        "minipaged incident 3",
    ),
)


class _Parser(argparse.ArgumentParser):
    """Reports a bad argument in one line, without the usage text of `--help`."""

    def error(self, message: str) -> NoReturn:
        _report(f"{message} (see {self.prog} --help)")
        raise SystemExit(EXIT_BAD_INPUT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; `None` for the arguments of the process.

    Returns:
        The exit code: the command's own code, 2 for bad input, or 130 after Ctrl-C.

    Raises:
        SystemExit: from argparse, after `--help`, `--version` or a bad argument.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except MinipagedError as error:
        _report(str(error))
        return EXIT_BAD_INPUT
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The program that reads our output has ended, as in `| head`. Python flushes stdout again at
            # exit, and that must not fail, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE
        _report(f"cannot read or write: {error}")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _mend_streams() -> None:
    """Make sure that no command fails because of its output streams.

    Output to closed streams is dropped. Characters that the stream's encoding lacks are shown as `?`. Input
    lines lose a carriage return or a byte-order mark.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it stays open to the end of the process)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Files of other systems end their lines with \r\n and may begin with a byte-order mark.
    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():
        is_utf_8 = codecs.lookup(sys.stdin.encoding).name == "utf-8"
        encoding = "utf-8-sig" if is_utf_8 else sys.stdin.encoding
        sys.stdin.reconfigure(encoding=encoding, errors="strict", newline=None)
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # rich would print nothing at all


def _run(arguments: list[str]) -> int:
    # The top level has no option that takes a value, so the first word is the command.
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = _Parser(
        prog="minipaged",
        description="An LLM inference engine with a paged KV cache, built to be read.",
        epilog="Example: minipaged demo",
    )
    parser.add_argument("--version", action="version", version=f"minipaged {__version__}")
    subparsers = parser.add_subparsers(metavar="command", required=False)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=f"{command.name}: {command.help}.",
            epilog=f"Example: {command.example}",
        )
        if command.name == chosen:
            module = command.load()
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    if chosen is None:
        parser.print_help(sys.stderr)
        return EXIT_BAD_INPUT
    return args.run(args)


def _report(message: str) -> None:
    """Print one line on stderr, red in a terminal."""
    line = f"minipaged: {' '.join(message.split())}"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\x1b[31m{line}\x1b[0m"
    print(line, file=sys.stderr)
