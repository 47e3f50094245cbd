"""The picture is never wider than the console, and shows everything that is in the snapshot."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from minipaged.loading.loader import LoadedModel
from minipaged.view.cells import ASCII, UNICODE, Glyphs, cell
from minipaged.view.labels import Labels
from minipaged.view.pool_snapshot import BlockSnapshot, PoolSnapshot, SequenceKey, take_snapshot
from minipaged.view.terminal import PoolView
from tests.view.histories import RandomHistory, snapshot

WIDTHS = (40, 80, 200)


def drawn(taken: PoolSnapshot, width: int, **options: int) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    view = PoolView(taken, Labels(), tokens_per_second=12.5, notes=("step 7: B admitted",), **options)
    console.print(view)
    return console.export_text().splitlines()


def pool_rows(lines: list[str]) -> list[str]:
    """The rows of blocks: a number, then cells of two columns."""
    return [line for line in lines if re.fullmatch(r" *\d+( \S.)+", line)]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_console(width: int, tiny: LoadedModel) -> None:
    pictures = [snapshot(), snapshot(num_blocks=2000, num_sequences=70)]
    for seed in range(5):
        history = RandomHistory(tiny, seed)
        for _ in range(30):
            history.advance()
        pictures.append(take_snapshot(history.engine))
    for taken in pictures:
        assert max(cell_len(line) for line in drawn(taken, width)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_shared_blocks_and_queues_are_shown(width: int) -> None:
    lines = drawn(snapshot(num_sequences=5), width)
    text = "\n".join(lines)
    pool = pool_rows(lines)
    assert "\n".join(pool).count("A⁵") == 2  # two blocks, five holders
    assert "\n".join(pool).count(UNICODE.cached) == 3
    assert "Running: 5" in text
    assert "Waiting: 2" in text
    assert "preempted" in text
    assert "12 tokens/s" in text
    assert "step 7: B admitted" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_each_block_has_one_cell(width: int) -> None:
    rows = pool_rows(drawn(snapshot(num_blocks=30), width))
    assert sum(len(line.split()) - 1 for line in rows) == 30
    # A row begins with the number of its first block.
    numbers = [int(line.split()[0]) for line in rows]
    assert numbers == [i * (len(rows[0].split()) - 1) for i in range(len(rows))]


def test_what_is_not_drawn_is_counted() -> None:
    text = "\n".join(drawn(snapshot(num_blocks=1000, num_sequences=30), 80, most_rows=2, most_sequences=10))
    assert "and 952 more blocks, 0 of them in use" in text
    assert "and 20 more" in text


def test_brackets_are_no_markup() -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(PoolView(snapshot(), Labels(), notes=("[bold]x[/bold]",)))
    assert "[bold]x[/bold]" in console.export_text()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_cell_has_two_columns_and_tells_the_states_apart(glyphs: Glyphs) -> None:
    a, b = SequenceKey("a"), SequenceKey("b")
    blocks = [
        BlockSnapshot(0, "null"),
        BlockSnapshot(1, "free"),
        BlockSnapshot(2, "cached", num_filled=8),
        BlockSnapshot(3, "used", (a,), 8),
        BlockSnapshot(4, "used", (b,), 8),
        BlockSnapshot(5, "used", (a, b), 8),
        BlockSnapshot(6, "used", (a, b, SequenceKey("c")), 8),
        BlockSnapshot(7, "used", (), 0),
        *(BlockSnapshot(8 + i, "used", (a,), i) for i in (0, 4, 7)),
    ]
    labels = Labels()
    cells = [cell(block, 8, labels, glyphs).plain for block in blocks]
    assert all(cell_len(text) == 2 for text in cells)
    assert len(set(cells)) == len(cells)


def test_a_console_without_unicode_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=file, width=60).print(PoolView(snapshot(), Labels()))
    file.seek(0)
    assert "A5" in file.read()  # and nothing above raised


def test_hundreds_of_holders_still_fit() -> None:
    keys = tuple(SequenceKey(str(i)) for i in range(300))
    assert cell(BlockSnapshot(1, "used", keys, 4), 4, Labels(), UNICODE).plain == "A⁺"
