"""The figures of chapter 4 that show numbers. The figure that shows blocks is in `picture.py`."""

from __future__ import annotations

from collections.abc import Mapping

from minipaged.course.figures import COLOURS, figure, show

SAMPLES = (2, 4, 6)
"""Numbers of samples, or widths of a beam search, as in the paper's Fig. 15."""

_DATA = (("ShareGPT", COLOURS[4]), ("Alpaca", COLOURS[5]))


def draw_samples(
    simulated: Mapping[tuple[str, int], float], paper: Mapping[str, tuple[float, float]]
) -> None:
    """Draw the simulated saving of samples, with the paper's values for 2 and for 6 samples.

    Args:
        simulated: saving by data set and number of samples, 0 to 1.
        paper: the paper's two values by data set, in %.
    """
    made, ax = figure(
        "Long prompts save; short ones hardly fill a block",
        "samples per request",
        "blocks saved, %",
        height=3.4,
    )
    words = []
    for (name, colour), style, marker in zip(_DATA, ("-", "--"), "os", strict=True):
        saved = [100 * simulated[name, n] for n in SAMPLES]
        low, high = paper[name]
        ax.plot(SAMPLES, saved, style, marker=marker, color=colour)
        ax.text(6.2, saved[-1], f"{name}-like, simulated", va="center", fontsize=9)
        ax.plot((2, 6), (low, high), "x", markersize=9, color=colour)
        ax.text(6.2, high, f"{name}, the paper", va="center", fontsize=9)
        words.append(
            f"{name}-like {saved[0]:.0f}, {saved[1]:.0f} and {saved[2]:.0f} %, in the paper {low} to {high} %"
        )
    ax.set_xticks(SAMPLES)
    ax.set_xlim(1.8, 8.2)
    ax.set_ylim(0, 35)
    show(made, f"Two rising lines of blocks saved with 2, 4 and 6 samples: {'; '.join(words)}.")


def draw_beams(beams: Mapping[tuple[str, int], float], samples: Mapping[tuple[str, int], float]) -> None:
    """Draw the measured saving of beams and of samples, both by data set and number, 0 to 1."""
    made, ax = figure(
        "Beams share what they have generated, not only the prompt",
        "samples, or beam width",
        "blocks saved, %",
        height=3.4,
    )
    words = []
    for numbers, what, style, marker in (
        (beams, "beams (measured)", "-", "o"),
        (samples, "samples (simulated)", "--", "s"),
    ):
        for name, colour in _DATA:
            saved = [100 * numbers[name, n] for n in SAMPLES]
            ax.plot(SAMPLES, saved, style, marker=marker, color=colour)
            ax.text(6.2, saved[-1], f"{name}-like, {what}", va="center", fontsize=9)
            words.append(f"{name}-like {what} {saved[0]:.0f}, {saved[1]:.0f}, {saved[2]:.0f}")
    ax.set_xticks(SAMPLES)
    ax.set_xlim(1.8, 9)
    ax.set_ylim(0, 100)
    show(made, f"Four rising lines of blocks saved in %, for 2, 4 and 6: {'; '.join(words)}.")
