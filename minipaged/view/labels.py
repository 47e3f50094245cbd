"""Labels: a letter and a colour for each sequence, so that a reader can follow it.

The letter says the same as the colour: nobody needs to tell the colours apart.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

from rich.color import Color
from rich.style import Style

from minipaged.view.pool_snapshot import SequenceKey

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#BBBBBB")
"""Seven colours that people with any kind of colour vision tell apart, and a grey.

Source: Okabe and Ito, "Color Universal Design" (2008)."""


@dataclass(frozen=True)
class Label:
    """How one sequence is drawn.

    Attributes:
        letter: its letter. With more sequences than letters they begin again.
        colour: of its cells, as `#RRGGBB`.
    """

    letter: str
    colour: str

    @property
    def solid(self) -> Style:
        """For a cell that is full: the colour behind, and black or white before it."""
        return Style(color=_readable_on(self.colour), bgcolor=self.colour)

    @property
    def outline(self) -> Style:
        """For a cell that is not full yet."""
        return Style(color=self.colour)


class Labels:
    """Gives out labels, in the order in which sequences are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[SequenceKey, int] = {}

    def __getitem__(self, key: SequenceKey) -> Label:
        number = self._numbers.setdefault(key, len(self._numbers))
        return Label(LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)])


def _readable_on(colour: str) -> str:
    """Black or white, whichever has the greater contrast (WCAG 2, relative luminance)."""
    channels = [channel / 255 for channel in Color.parse(colour).get_truecolor()]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    black, white = (luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)
    return "#000000" if black >= white else "#FFFFFF"
