"""Finding stop strings in a text that arrives in pieces.

A piece is the text of a token, so a stop string may extend over several pieces. Text that may be the
beginning of a stop string must be held back until it is certain.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Checked:
    """The result of checking one piece of text.

    Attributes:
        text: the text that may be shown now, after the text shown before.
        match: the stop string that was found, or `None`. After a match no more text follows.
    """

    text: str
    match: str | None = None


class StopChecker:
    """Looks for stop strings in the text of one sequence.

    The match that is completed first wins, as if the text came character by character. If several matches
    end at the same character, the longest wins. So the result does not depend on how the text is cut into
    pieces.

    Args:
        stop: the stop strings; at least one, and none is empty.
        include: whether the stop string stays at the end of the text. Text after it is cut off in either
            case.
    """

    def __init__(self, stop: tuple[str, ...], include: bool = False) -> None:
        self._stop = sorted(stop, key=len, reverse=True)
        self._include = include
        self._held = ""  # the longest end of the text that is the beginning of a stop string
        self._match: str | None = None

    def feed(self, delta: str, active: bool = True) -> Checked:
        """Take the next piece of text.

        Args:
            delta: the piece; may be empty.
            active: whether a stop string that ends in this piece counts. It is `False` while there are
                fewer than `min_tokens` tokens. Then such a stop string passes through as plain text. A
                stop string that begins in an inactive piece and ends in an active one counts. It is cut
                off as a whole, since its beginning was held back.

        Returns:
            The text to show, and the match if there is one. After a match, the text is always empty.
        """
        if self._match is not None:
            return Checked("", self._match)
        shown: list[str] = []
        for character in delta:
            # `_held` contains the beginning of every possible match, so `text` contains any match that
            # ends at this character.
            text = self._held + character
            if active:
                self._match = next((string for string in self._stop if text.endswith(string)), None)
            if self._match is not None:
                shown.append(text if self._include else text[: -len(self._match)])
                self._held = ""
                break
            self._held = self._beginning(text)
            shown.append(text[: len(text) - len(self._held)])
        return Checked("".join(shown), self._match)

    def flush(self) -> str:
        """Return the text that was held back. The output has ended, so it cannot become a stop string."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> str:
        """The longest end of `text` that is the beginning of a longer stop string."""
        for start in range(len(text)):
            end = text[start:]
            if any(string.startswith(end) and string != end for string in self._stop):
                return end
        return ""
