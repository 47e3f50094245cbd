"""`minipaged doctor`: reports whether the engine can run here, and with which devices and models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minipaged.cli import health

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

EXIT_CANNOT_RUN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`minipaged doctor` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Print the findings. Returns 0 if the engine can run here, otherwise 1."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    packages = health.packages()
    broken = [finding for finding in packages if finding.state == "broken"]
    devices = health.devices()
    for title, findings in (
        ("Versions", packages),
        ("Devices", devices),
        ("Triton", [health.triton()]),
        ("Models", health.models()),
        ("Folders", health.folders()),
    ):
        console.print(_table(title, findings))
    if broken:
        reasons = "; ".join(f"{finding.subject}: {finding.detail}" for finding in broken)
        console.print(f"The engine cannot run here. {reasons}", style="red", soft_wrap=True)
        return EXIT_CANNOT_RUN
    chosen = next(finding.subject for finding in devices if finding.state == "good")
    console.print(f"The engine can run here. device='auto' takes {chosen}.", style="green", soft_wrap=True)
    return 0


def _table(title: str, findings: Sequence[health.Finding]) -> Table:
    from rich.table import Table

    marks = {"good": ("✓", "green"), "absent": ("–", "dim"), "broken": ("✗", "red")}
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = marks[finding.state]
        table.add_row(mark, finding.subject, finding.detail, style=style if finding.state != "good" else None)
    return table
