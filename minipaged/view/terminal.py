"""PoolView: the pool, the queues and the counts, drawn with rich.

    console.print(PoolView(take_snapshot(engine), labels))

A `rich.live.Live` can draw it again after each step. No line is wider than the console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from minipaged.request import RequestStatus
from minipaged.view.cells import ASCII, CELL_WIDTH, UNICODE, Glyphs, bar, cell
from minipaged.view.labels import Labels
from minipaged.view.pool_snapshot import PoolSnapshot, RequestSnapshot

MOST_ROWS = 24
"""The most rows of blocks that are drawn. Further blocks are only counted."""

MOST_SEQUENCES = 16
"""The most sequences of each queue that are drawn."""

_HEADING = Style(bold=True)
_QUIET = Style(dim=True)
_GAP = "   "


@dataclass(frozen=True)
class PoolView:
    """A picture of one snapshot.

    Args:
        snapshot: the snapshot to draw.
        labels: the sequences' letters and colours. Use the same object for all pictures of one run.
        tokens_per_second: shown if it is not `None`.
        notes: lines to show below, such as the latest events.
        most_rows: draw at most this many rows of blocks.
        most_sequences: draw at most this many sequences of each queue.
    """

    snapshot: PoolSnapshot
    labels: Labels
    tokens_per_second: float | None = None
    notes: Sequence[str] = field(default=())
    most_rows: int = MOST_ROWS
    most_sequences: int = MOST_SEQUENCES

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else UNICODE
        yield from self._pool(options.max_width, glyphs)
        yield from self._running(options.max_width, glyphs)
        yield from self._waiting(options.max_width)
        yield from self._counts(options.max_width)
        for note in self.notes:
            yield Text(note, _QUIET, overflow="fold")

    # The pool

    def _pool(self, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
        blocks, block_size = self.snapshot.blocks, self.snapshot.block_size
        yield from self._pool_heading(width)
        number_width = len(str(len(blocks) - 1))
        per_row = _cells_per_row(width - number_width - 1)
        for first in range(0, len(blocks), per_row)[: self.most_rows]:
            row = Text(no_wrap=True, overflow="crop")
            row.append(f"{first:>{number_width}}", _QUIET)
            for block in blocks[first : first + per_row]:
                row.append(" ").append_text(cell(block, block_size, self.labels, glyphs))
            yield row
        hidden = blocks[per_row * self.most_rows :]
        if hidden:
            used = sum(block.state == "used" for block in hidden)
            yield Text(f"and {len(hidden):,} more blocks, {used:,} of them in use", _QUIET)
        yield from self._legend(width, glyphs)

    def _legend(self, width: int, glyphs: Glyphs) -> Iterator[Text]:
        one = glyphs.levels[len(glyphs.levels) // 2]
        meanings = (
            ("A", "full"),
            (f"A{one}", "partly filled"),
            (f"A{glyphs.counts[1]}", "shared by 3"),
            (glyphs.cached, "free, cached"),
            (glyphs.free, "free"),
            (glyphs.null, "null"),
        )
        return _lines([Text(f"{sign} {meaning}", _QUIET) for sign, meaning in meanings], width)

    # The queues

    def _running(self, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
        sequences = self.snapshot.running_sequences
        explained = Text("prompt + output/most, in tokens", _QUIET)
        yield from _lines([Text(f"Running: {len(sequences):,}", _HEADING), explained], width)
        if not sequences:
            return
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True, overflow="ellipsis")
        bar_width = max(4, min(30, width - 36))
        for seq in sequences[: self.most_sequences]:
            label = self.labels[seq.key]
            table.add_row(
                Text(f" {label.letter} ", label.solid),
                Text(
                    bar(seq.num_computed_tokens / max(1, seq.most_tokens - 1), bar_width, glyphs),
                    label.outline,
                ),
                f"{seq.num_prompt_tokens} + {seq.num_output_tokens}/{seq.most_output_tokens}",
                f"{len(seq.block_ids)} block{'' if len(seq.block_ids) == 1 else 's'}",
            )
        yield table
        if len(sequences) > self.most_sequences:
            yield Text(f"and {len(sequences) - self.most_sequences:,} more", _QUIET)

    def _waiting(self, width: int) -> Iterator[RenderableType]:
        waiting = self.snapshot.waiting
        yield Text(f"Waiting: {len(waiting):,}", _HEADING)
        chips = [self._chip(request) for request in waiting[: self.most_sequences]]
        if len(waiting) > self.most_sequences:
            chips.append(Text(f"and {len(waiting) - self.most_sequences:,} more", _QUIET))
        yield from _lines(chips or [Text()], width)

    def _chip(self, request: RequestSnapshot) -> Text:
        label = self.labels[request.sequences[0].key]
        chip = Text().append(f" {label.letter} ", label.solid)
        if request.status is RequestStatus.PREEMPTED:
            chip.append(" preempted")
        return chip

    # The counts

    def _pool_heading(self, width: int) -> Iterator[Text]:
        snapshot = self.snapshot
        share = snapshot.num_used / max(1, snapshot.num_usable)
        counts = (
            f"{snapshot.num_used:,} used ({share:.0%})",
            f"{snapshot.num_shared:,} shared",
            f"{snapshot.num_cached:,} cached",
            f"{snapshot.num_free:,} free",
        )
        heading = Text(f"Pool: {snapshot.num_usable:,} blocks, block size {snapshot.block_size}", _HEADING)
        return _lines([heading, *(Text(count, _QUIET) for count in counts)], width)

    def _counts(self, width: int) -> Iterator[Text]:
        snapshot = self.snapshot
        preemptions = "preemption" if snapshot.num_preemptions == 1 else "preemptions"
        counts = [
            f"{snapshot.num_preemptions:,} {preemptions}",
            f"{snapshot.prefix_cache_hits:,} tokens from the prefix cache",
        ]
        if self.tokens_per_second is not None:
            counts.insert(0, f"{self.tokens_per_second:,.0f} tokens/s")
        step = Text(f"Step {snapshot.num_steps:,}", _HEADING)
        return _lines([step, *(Text(count, _QUIET) for count in counts)], width)


def _lines(parts: list[Text], width: int) -> Iterator[Text]:
    """Put as many parts on each line as fit. Only a part that is wider than a whole line is broken."""
    line = parts[0].copy()
    for part in parts[1:]:
        if line.cell_len + len(_GAP) + part.cell_len > width:
            yield line
            line = part.copy()
        else:
            line = Text.assemble(line, _GAP, part)
    yield line


def _cells_per_row(width: int) -> int:
    """How many cells fit into a row.

    From 8 on, the number is rounded down to a multiple of 8, so that block numbers are easy to find.
    """
    cells = max(1, width // (CELL_WIDTH + 1))
    return cells if cells < 8 else cells // 8 * 8
