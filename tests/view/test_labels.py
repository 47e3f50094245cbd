"""Letters and colours of sequences."""

from __future__ import annotations

from rich.color import Color

from minipaged.view.labels import COLOURS, LETTERS, Labels
from minipaged.view.pool_snapshot import SequenceKey


def test_a_sequence_keeps_its_label_and_others_have_another() -> None:
    labels = Labels()
    first = [labels[SequenceKey(f"r{i}", sample)] for i in range(4) for sample in range(2)]
    assert [label.letter for label in first] == list("ABCDEFGH")
    assert len({label.colour for label in first}) == len(COLOURS)
    assert labels[SequenceKey("r2", 1)] == first[5]


def test_two_runs_do_not_share_labels() -> None:
    assert Labels()[SequenceKey("x")].letter == "A"
    assert Labels()[SequenceKey("y")].letter == "A"


def test_there_are_more_sequences_than_letters() -> None:
    labels = Labels()
    letters = [labels[SequenceKey(str(i))].letter for i in range(2 * len(LETTERS))]
    assert letters == list(LETTERS) * 2


def test_letters_are_readable_on_their_colour() -> None:
    """The contrast is at least 4.5 : 1, as level AA of WCAG 2 requires."""

    def luminance(colour: Color) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (channel / 255 for channel in colour.get_truecolor())
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    labels = Labels()
    for i in range(len(COLOURS)):
        style = labels[SequenceKey(str(i))].solid
        assert style.color is not None
        assert style.bgcolor is not None
        dark, light = sorted((luminance(style.color), luminance(style.bgcolor)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5
