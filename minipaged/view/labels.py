"""Labels: a letter and a colour for each sequence, so that a reader can follow it.

The letter carries the same information as the colour, so readers need not distinguish the colours.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

from rich.color import Color
from rich.style import Style

from minipaged.view.pool_snapshot import SequenceKey

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#BBBBBB")
"""Seven colours that people with any kind of colour vision can distinguish, and a grey.

Source: Okabe and Ito, "Color Universal Design" (2008)."""


@dataclass(frozen=True)
class Label:
    """The letter and the colour of one sequence.

    Attributes:
        letter: the sequence's letter. If there are more sequences than letters, letters are used again.
        colour: the colour of the sequence's cells, as `#RRGGBB`.
    """

    letter: str
    colour: str

    @property
    def solid(self) -> Style:
        """The style of a full block's cell: the colour as background, with black or white text."""
        return Style(color=_readable_on(self.colour), bgcolor=self.colour)

    @property
    def outline(self) -> Style:
        """The style of a cell whose block is not yet full."""
        return Style(color=self.colour)


class Labels:
    """Assigns a label to each sequence, in the order of the first look-ups."""

    def __init__(self) -> None:
        self._numbers: dict[SequenceKey, int] = {}

    def __getitem__(self, key: SequenceKey) -> Label:
        number = self._numbers.setdefault(key, len(self._numbers))
        return Label(LETTERS[number % len(LETTERS)], COLOURS[number % len(COLOURS)])


def _readable_on(colour: str) -> str:
    """Black or white: the one with the greater contrast to `colour` (WCAG 2, relative luminance)."""
    channels = [channel / 255 for channel in Color.parse(colour).get_truecolor()]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    black, white = (luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)
    return "#000000" if black >= white else "#FFFFFF"
