"""Stop strings in a text that arrives in pieces.

The pieces are cut wherever tokens end, so a stop string may lie across several of them, and text
that may turn out to be its beginning must not be shown yet. An automaton (Aho and Corasick,
"Efficient String Matching", 1975) reads each character once and always knows the longest end of the
text that begins some stop string: exactly that much is held back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Checked:
    """What one piece of text led to.

    Attributes:
        text: what may be shown now, in addition to what was shown before.
        match: the stop string that was found, or `None`. With a match, `text` is the last there is.
    """

    text: str
    match: str | None = None


@dataclass(eq=False, repr=False)
class _State:
    """One state of the automaton: the text ends with a certain beginning of some stop string.

    Attributes:
        depth: length of that beginning, in characters.
        next: the states that one more character leads to.
        fallback: the state for the longest proper end of this beginning.
        match: the longest stop string that the text ends with here.
        held: length of the longest end of the text that more characters could make a stop string.
    """

    depth: int
    fallback: _State | None = None
    next: dict[str, _State] = field(default_factory=dict)
    match: str | None = None
    held: int = 0


class StopChecker:
    """Looks for stop strings in the text of one sequence. Takes linear time in the text.

    The first match to be complete wins, as if the text came character by character; of several that
    end at the same character, the longest, which is the one that begins first. So the result does
    not depend on how the text is cut into pieces.

    Args:
        stop: the stop strings, none empty. Without any, all text passes through.
        include: leave the stop string at the end of the text, instead of cutting it off. What
            follows it is cut off in either case.
    """

    def __init__(self, stop: tuple[str, ...], include: bool = False) -> None:
        self._include = include
        self._root = _automaton(stop)
        self._state = self._root
        self._held: deque[str] = deque()  # characters not shown yet
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
        if not self._root.next:
            return Checked(delta)
        for character in delta:
            self._held.append(character)
            self._state = _step(self._state, character)
            if active and self._state.match is not None:
                self._match = self._state.match
                text = self._show(0 if self._include else len(self._match))
                self._held.clear()
                return Checked(text, self._match)
        return Checked(self._show(self._state.held))

    def flush(self) -> str:
        """The text held back: the output has ended, so it is no stop string's beginning."""
        return self._show(0)

    def _show(self, keep: int) -> str:
        """Take all but the last `keep` characters out of those held."""
        return "".join(self._held.popleft() for _ in range(len(self._held) - keep))


def _step(state: _State, character: str) -> _State:
    """The state after one more character. Falls back no more often than it has stepped forward."""
    while character not in state.next:
        if state.fallback is None:
            return state
        state = state.fallback
    return state.next[character]


def _automaton(stop: tuple[str, ...]) -> _State:
    """Build the states: a trie of the stop strings, then the fallbacks, level by level."""
    root = _State(depth=0)
    for string in stop:
        state = root
        for character in string:
            state = state.next.setdefault(character, _State(depth=state.depth + 1))
        state.match = string
    level = deque([root])
    while level:
        state = level.popleft()
        for character, child in state.next.items():
            level.append(child)
            # The root's children fall back to the root; all others step on from their parent's fallback.
            child.fallback = root if state.fallback is None else _step(state.fallback, character)
            # A stop string that ends here is longer than one that ends at the fallback.
            child.match = child.match or child.fallback.match
            child.held = child.depth if child.next else child.fallback.held
    return root
