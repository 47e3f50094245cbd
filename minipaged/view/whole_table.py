"""Tables whose numbers are never cut. If a terminal is too narrow for one, each row becomes a sentence."""

from __future__ import annotations

import sys

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether a table can be shown with nothing in it wrapped or cut."""
    unlimited = options.update(max_width=sys.maxsize)
    return Measurement.get(console, unlimited, table).maximum <= options.max_width


class WholeTable:
    """A plain table of numbers under a title.

    Args:
        title: the title, which is shown above the table.
        headings: the headings of the columns. The first may be empty.
    """

    def __init__(self, title: str, *headings: str) -> None:
        self._title = title
        self._headings = headings
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each heading."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        if fits(table, console, options):
            yield table
            return
        yield Text(self._title, style="italic")
        for row in self._rows:
            named = (f"{heading} {cell}".strip() for heading, cell in zip(self._headings, row, strict=True))
            yield Text(f" {', '.join(named)}")

    def _table(self) -> Table:
        table = Table(title=self._title, title_justify="left", box=None, padding=(0, 1), title_style="italic")
        for heading in self._headings:
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        return table
