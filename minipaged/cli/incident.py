"""`minipaged incident N`: shows a run with one fault, which the reader finds from its trace."""

from __future__ import annotations

import argparse
from pathlib import Path

from minipaged.cli.replay import open_page, page_path, refuse_to_replace
from minipaged.cli.streams import stdout_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minipaged incident`."""
    parser.add_argument("number", metavar="N", type=int, nargs="?", help="its number; without it: a list")
    parser.add_argument("--answer", metavar="ANSWER", help="check an answer: a number, an id, or a letter")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the trace (default: incident-N.jsonl.gz)")
    parser.add_argument("--no-open", action="store_true", help="write the page, and do not open it")


def run(args: argparse.Namespace) -> int:
    """List the incidents, begin one, or check an answer. Exits with 1 if the answer is wrong."""
    from minipaged.course.incidents import INCIDENTS, incident
    from minipaged.errors import CourseError
    from minipaged.trace import Trace, TraceWriter
    from minipaged.trace.page.build import replay_page

    console = stdout_console()
    if args.number is None:
        if args.answer is not None:
            raise CourseError("--answer needs the number of an incident, as in: incident 3 --answer 12")
        for number, each in enumerate(INCIDENTS, 1):
            console.print(f"{number}. {each.symptom}\n")
        return 0
    chosen = incident(args.number)
    if args.answer is not None:
        finding = chosen.find(chosen.record())
        if not finding.accepts(args.answer):
            console.print("That is not what the trace shows.", style="bold")
            return 1
        console.print("Yes.", style="bold")
        console.print(finding.explanation)
        return 0
    path = args.out or Path(f"incident-{args.number}.jsonl.gz")
    page = page_path(path)
    refuse_to_replace([path], page)
    with TraceWriter(path, title=f"incident {args.number}") as writer:
        chosen.run(writer)
    page.write_text(replay_page([Trace.read(path)], [f"incident {args.number}"]), encoding="utf-8")
    console.print(f"{chosen.symptom}\n\n{chosen.question}")
    for letter, choice in chosen.lettered_choices():
        console.print(f"  {letter}) {choice}")
    answer = "LETTER" if chosen.choices else "ANSWER"
    console.print(f"\nThe trace is {path}, and its page {page}.")
    console.print(f"Check your answer: minipaged incident {args.number} --answer {answer}")
    if not args.no_open and console.is_terminal:
        open_page(page)
    return 0
