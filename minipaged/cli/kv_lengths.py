"""The blocks and bytes of requests of several lengths, as a table, or as text in a narrow terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minipaged.kv.size import KVShape, blocks_needed, bytes_per_block
from minipaged.view.byte_amounts import format_binary

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class LengthRow:
    """The row of the table for one request length.

    Attributes:
        num_tokens: the length.
        num_blocks: number of blocks that a request of this length takes.
        num_bytes: size of these blocks in bytes.
        num_fitting: requests of this length that fit; `None` if there is no amount of memory.
        marked: whether the model was not trained for this length.
    """

    num_tokens: int
    num_blocks: int
    num_bytes: int
    num_fitting: int | None
    marked: bool

    @classmethod
    def of(
        cls, shape: KVShape, block_size: int, length: int, pool_blocks: int | None, longest_trained: int
    ) -> LengthRow:
        """The row for a length in tokens, and a pool of `pool_blocks` blocks including the null block."""
        num_blocks = blocks_needed(length, block_size)
        return cls(
            num_tokens=length,
            num_blocks=num_blocks,
            num_bytes=num_blocks * bytes_per_block(shape, block_size),
            num_fitting=None if pool_blocks is None else max(0, pool_blocks - 1) // num_blocks,
            marked=length > longest_trained,
        )

    def in_words(self) -> str:
        """The whole row as one line of text."""
        fitting = "" if self.num_fitting is None else f", {self.num_fitting:,} requests fit"
        return (
            f"{self.num_tokens:,} tokens{self._mark}: {self.num_blocks:,} blocks, {self.num_bytes:,} bytes "
            f"({format_binary(self.num_bytes)}){fitting}"
        )

    def cells(self) -> list[str]:
        """The row's texts for the columns of the table."""
        counts = [f"{self.num_tokens:,}{self._mark}", f"{self.num_blocks:,}", f"{self.num_bytes:,}"]
        fitting = [] if self.num_fitting is None else [f"{self.num_fitting:,}"]
        return [*counts, format_binary(self.num_bytes), *fitting]

    @property
    def _mark(self) -> str:
        return " *" if self.marked else ""


def length_table(rows: Sequence[LengthRow]) -> Table:
    """The table, with one line for each row. There must be at least one row."""
    from rich.table import Table

    titles = ("tokens", "blocks", "bytes per\nrequest", "", "requests\nthat fit")
    table = Table()
    for title, _ in zip(titles, rows[0].cells(), strict=False):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row.cells())
    return table
