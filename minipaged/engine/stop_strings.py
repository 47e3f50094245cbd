"""Stop strings in a text that arrives in pieces.

The pieces are cut wherever tokens end, so a stop string may lie across several of them, and text
that may turn out to be its beginning must not be shown yet.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Checked:
    """What one piece of text led to.

    Attributes:
        text: what may be shown now, in addition to what was shown before.
        match: the stop string that was found, or `None`. With a match, `text` is the last there is.
    """

    text: str
    match: str | None = None


class StopChecker:
    """Looks for stop strings in the text of one sequence.

    The first match to be complete wins, as if the text came character by character; of several that
    end at the same character, the longest, which is the one that begins first. So the result does
    not depend on how the text is cut into pieces.

    Args:
        stop: the stop strings, none empty. Without any, all text passes through.
        include: leave the stop string at the end of the text, instead of cutting it off. What
            follows it is cut off in either case.
    """

    def __init__(self, stop: tuple[str, ...], include: bool = False) -> None:
        self._stop = sorted(stop, key=len, reverse=True)
        self._include = include
        self._held = ""  # the longest end of the text that begins some stop string
        self._match: str | None = None

    def feed(self, delta: str, active: bool = True) -> Checked:
        """Take the next piece of text.

        Args:
            delta: the piece; may be empty.
            active: whether a stop string that is complete within this piece counts. `False` while
                there are fewer than `min_tokens` tokens: complete ones pass through as plain text.
                One that begins in such a piece and is complete in a later, active one counts, and
                is cut off as a whole: its beginning was held back.

        Returns:
            The text to show, and the match if there is one. After a match nothing is shown any more.
        """
        if self._match is not None:
            return Checked("", self._match)
        if not self._stop:
            return Checked(delta)
        shown: list[str] = []
        for character in delta:
            # A match that ends here began some stop string one character ago, so it is in here.
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
        """The text held back: the output has ended, so it is no stop string's beginning."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> str:
        """The longest end of `text` that more characters could make a stop string."""
        for start in range(len(text)):
            end = text[start:]
            if any(string.startswith(end) and string != end for string in self._stop):
                return end
        return ""
