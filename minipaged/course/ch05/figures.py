"""The figures of chapter 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minipaged.course.figures import COLOURS, HATCHES, figure, label_bars, show


def draw_programs(table: Sequence[int], num_blocks: int, num_splits: int) -> None:
    """Draw the pool, and which program of a split reads which block of it.

    Args:
        table: a sequence's block table.
        num_blocks: blocks in the pool.
        num_splits: programs of the sequence, for one KV head.
    """
    made, ax = figure("Each program reads its own blocks, where they are", "physical block", "program")
    per_part = -(-len(table) // num_splits)
    ax.set_axisbelow(True)
    words = []
    for split in range(num_splits):
        mine = table[split * per_part : (split + 1) * per_part]
        for logical, block in enumerate(mine, split * per_part):
            ax.barh(split, 0.9, left=block - 0.45, height=0.7, color=COLOURS[1], hatch=HATCHES[split % 4])
            ax.text(
                block,
                split,
                str(logical),
                ha="center",
                va="center",
                bbox={"facecolor": "white", "linewidth": 0, "pad": 1},
            )
        read = f"blocks {', '.join(map(str, mine))}" if mine else "nothing"
        words.append(f"program {split} reads {read}")
    ax.set_xlim(-0.6, num_blocks - 0.4)
    ax.set_xticks(range(num_blocks))
    ax.set_yticks(range(num_splits))
    ax.invert_yaxis()
    show(made, f"One row for each program, with the physical blocks it reads: {'; '.join(words)}.")


def draw_floors(floors: Mapping[str, float]) -> None:
    """Draw the least time of a decode step's attention on several devices.

    Args:
        floors: milliseconds by device.
    """
    made, ax = figure("No kernel can be faster than the memory", "", "milliseconds, at least")
    ax.bar(list(floors), list(floors.values()), color=COLOURS[4])
    label_bars(ax)
    words = ", ".join(f"{name} {value:.1f} ms" for name, value in floors.items())
    show(made, f"One bar for each device, the bytes divided by the quoted bandwidth: {words}.")


def draw_roads(lengths: Sequence[int], gathers: Sequence[float], reads: Sequence[float]) -> None:
    """Draw the measured times of attention with a gather and through the table.

    Args:
        lengths: tokens of each sequence.
        gathers, reads: milliseconds of a step with 8 sequences, for each length.
    """
    made, ax = figure("Gathering first takes longer", "tokens of each sequence", "milliseconds")
    words = []
    for name, times, style, marker, colour in (
        ("gather, then attend", gathers, "-", "o", COLOURS[4]),
        ("through the table", reads, "--", "s", COLOURS[5]),
    ):
        ax.plot(lengths, times, style, marker=marker, color=colour, label=name)
        words.append(f"{name}: {', '.join(f'{ms:.1f}' for ms in times)} ms")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    show(made, f"Two lines, for {', '.join(map(str, lengths))} tokens. {'; '.join(words)}.")


def draw_occupancy(num_multiprocessors: int, busy: Mapping[int, Sequence[float]]) -> None:
    """Draw the share of a GPU's multiprocessors that have a program, by the number of parts.

    Args:
        num_multiprocessors: multiprocessors of the GPU.
        busy: for each number of sequences, the share in % for 1, 2, 4, 8, … parts.
    """
    made, ax = figure("A few sequences fill a GPU only in parts", "parts of each sequence", "busy, %")
    words = []
    for (num_seqs, shares), colour, marker in zip(busy.items(), COLOURS[4:], "os^", strict=False):
        parts = [2**i for i in range(len(shares))]
        ax.plot(parts, shares, marker=marker, color=colour, label=f"{num_seqs} sequences")
        words.append(f"{num_seqs} sequences {', '.join(f'{share:.0f}' for share in shares)} %")
    ax.set_xscale("log", base=2)
    ax.set_ylim(0, 105)
    ax.legend(frameon=False)
    show(
        made,
        f"Rising lines up to 100 %, for 1, 2, 4 and more parts: the share of {num_multiprocessors} "
        f"multiprocessors with a program. {'; '.join(words)}.",
    )
