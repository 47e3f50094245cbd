"""The figures of chapter 1."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from minipaged.course.ch01.snapshot import Snapshot
from minipaged.course.figures import COLOURS, figure, label_bars, show


def draw_roofline(step_seconds: Callable[[int], tuple[float, float]], limits: Mapping[int, str]) -> None:
    """Draw the two parts of a decode step over the number of requests in the batch.

    Args:
        step_seconds: maps a number of requests to the seconds for moving bytes and for arithmetic.
        limits: batch sizes to mark, with their names.
    """
    batches = range(1, 201)
    made, ax = figure(
        "The batch ends where memory ends, long before arithmetic counts",
        "requests in the batch",
        "milliseconds per decode step",
    )
    moving, arithmetic = zip(*(step_seconds(batch) for batch in batches), strict=True)
    ax.plot(batches, [1e3 * each for each in moving], color=COLOURS[4])
    ax.plot(batches, [1e3 * each for each in arithmetic], "--", color=COLOURS[5])
    ax.text(150, 42, "moving bytes", color=COLOURS[4])
    ax.text(150, 7.5, "arithmetic", color=COLOURS[5])
    for limit, name in limits.items():
        ax.axvline(limit, color="black", linestyle=":", linewidth=1)
        ax.text(limit + 2, 52, name, fontsize=9)
    ax.set_ylim(bottom=0)
    show(
        made,
        "Two rising lines over the requests in the batch, 1 to 200. Moving bytes takes "
        f"{1e3 * moving[0]:.0f} to {1e3 * moving[-1]:.0f} ms per step, arithmetic "
        f"{1e3 * arithmetic[0]:.1f} to {1e3 * arithmetic[-1]:.0f} ms: it is below everywhere. "
        f"Dotted lines mark {' and '.join(limits.values())}.",
    )


def draw_shares(title: str, shares: Mapping[str, float]) -> None:
    """Draw a device's memory as one bar.

    Args:
        title: what the figure shows.
        shares: name -> share of the memory, 0 to 1. The shares sum to 1.
    """
    made, ax = figure(title, "share of the device's memory, %", "", height=1.5)
    left = 0.0
    looks = zip((COLOURS[4], COLOURS[0], COLOURS[7]), ("", "//", ".."), strict=True)
    for (name, share), (colour, hatch) in zip(shares.items(), looks, strict=True):
        ax.barh([""], [share * 100], left=left, color=colour, hatch=hatch, ec="white")
        ax.text(left + 1, 0.48, f"{name} {share:.0%}", fontsize=9)
        left += share * 100
    ax.set_ylim(-0.4, 0.75)
    words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    show(made, f"One bar, {title}, in parts: {words}.")


def draw_token_costs(names: Sequence[str], kib: Sequence[float], as_mha: Sequence[float]) -> None:
    """Draw the KiB per token of some models, and what it would be with a KV head for each query head."""
    made, ax = figure(
        "What a token costs follows from the KV heads, not from the model's size",
        "",
        "KiB per token, 16-bit",
        height=3.6,
    )
    places = range(len(names))
    ax.bar([p - 0.2 for p in places], as_mha, 0.4, color=COLOURS[7], label="if it were MHA")
    ax.bar([p + 0.2 for p in places], kib, 0.4, color=COLOURS[4], hatch="//", label="as it is")
    ax.set_xticks(list(places), ["\n".join(name.rsplit("-", 1)) for name in names], fontsize=9)
    label_bars(ax, "%.0f")
    ax.legend(frameon=False)
    words = (f"{n} {k:.0f} (MHA {m:.0f})" for n, k, m in zip(names, kib, as_mha, strict=True))
    show(made, f"Bars of KiB per token, each beside what it would be with MHA: {', '.join(words)}.")


def draw_lengths(queue: Sequence[int], reserved: int) -> None:
    """Draw a histogram of the tokens of a queue's requests, with what is reserved for each."""
    made, ax = figure("Most requests are far below what is reserved for them", "tokens so far", "requests")
    ax.hist(queue, bins=60, color=COLOURS[1])
    ax.axvline(reserved, color="black", linestyle=":")
    ax.text(reserved - 18, 300, f"reserved: {reserved:,}", ha="right", fontsize=9)
    show(
        made,
        f"Histogram of the tokens that {len(queue):,} requests have so far. It rises steeply and has a long "
        f"thin tail; half of the requests are below {statistics.median(queue):.0f}. Reserved for each are "
        f"{reserved:,} tokens.",
    )


def draw_snapshots(contiguous: Sequence[Snapshot], paged: Sequence[Snapshot]) -> None:
    """Draw each snapshot as a point: the share of slots that hold a token, and the number of requests."""
    made, ax = figure(
        f"Every seed says the same: {paged[0].num_slots:,} slots, two layouts",
        "share of slots with a token, %",
        "requests running",
        height=3.4,
    )
    words = []
    for name, shots, colour, marker in (
        ("contiguous, 2,048 reserved", contiguous, COLOURS[5], "x"),
        ("paged, blocks of 16", paged, COLOURS[4], "o"),
    ):
        used, requests = [100 * shot.used for shot in shots], [shot.num_requests for shot in shots]
        ax.scatter(used, requests, s=18, color=colour, marker=marker, alpha=0.6, label=name)
        words.append(
            f"{name}: {min(used):.0f} to {max(used):.0f} % used, {min(requests)} to {max(requests)} requests"
        )
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 60)
    ax.legend(frameon=False, loc="upper left")
    show(made, f"Two clouds of {len(paged)} points each, far apart. {'; '.join(words)}.")
