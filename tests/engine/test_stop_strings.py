"""StopChecker, compared with a search in the whole text, for any division into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.engine.stop_strings import Checked, StopChecker
from tests.long_tests import examples

PIECES = st.lists(st.tuples(st.text("ab", max_size=5), st.booleans()), max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4).map(tuple)


def feed_all(checker: StopChecker, feeds: Sequence[tuple[str, bool]]) -> tuple[str, str | None]:
    text = ""
    for delta, active in feeds:
        checked = checker.feed(delta, active)
        text += checked.text
        if checked.match is not None:
            return text, checked.match
    return text + checker.flush(), None


def naive(stop: tuple[str, ...], feeds: Sequence[tuple[str, bool]], include: bool) -> tuple[str, str | None]:
    """The rule for a whole text: the first end of a stop string that counts, and the longest one there."""
    text = "".join(delta for delta, _ in feeds)
    counts = [active for delta, active in feeds for _ in delta]
    for end in range(1, len(text) + 1):
        found = [string for string in stop if text[:end].endswith(string)]
        if counts[end - 1] and found:
            match = max(found, key=len)
            return (text[:end] if include else text[: end - len(match)]), match
    return text, None


@settings(max_examples=examples(500), deadline=None)
@given(STOPS, PIECES, st.booleans())
def test_as_a_search_of_the_whole_text(
    stop: tuple[str, ...], feeds: list[tuple[str, bool]], include: bool
) -> None:
    assert feed_all(StopChecker(stop, include), feeds) == naive(stop, feeds, include)


@settings(max_examples=300, deadline=None)
@given(STOPS, PIECES)
def test_holds_back_only_what_may_become_a_stop_string(
    stop: tuple[str, ...], feeds: list[tuple[str, bool]]
) -> None:
    checker = StopChecker(stop)
    seen = shown = ""
    for delta, active in feeds:
        checked = checker.feed(delta, active)
        if checked.match is not None:
            return
        seen += delta
        shown += checked.text
        held = seen[len(shown) :]
        assert seen == shown + held
        beginnings = [
            seen[i:] for i in range(len(seen)) if any(s.startswith(seen[i:]) and s != seen[i:] for s in stop)
        ]
        assert held == max(beginnings, key=len, default="")


@pytest.mark.parametrize(
    ("stop", "text", "expected"),
    [
        (("END",), "the END of", ("the ", "END")),
        (("ab", "abc"), "xabc", ("x", "ab")),  # complete first
        (("abcd", "bc"), "xabcd", ("xa", "bc")),  # complete first
        (("c", "abc", "bc"), "xabc", ("x", "abc")),  # complete together: the longest
        (("aab",), "aaab", ("a", "aab")),
        (("\n\n",), "a\nb\n\nc", ("a\nb", "\n\n")),
        (("😀!",), "x😀😀!", ("x😀", "😀!")),
        ((), "anything", ("anything", None)),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_examples(stop: tuple[str, ...], text: str, expected: tuple[str, str | None], size: int) -> None:
    feeds = [(text[i : i + size], True) for i in range(0, len(text), size)]
    assert feed_all(StopChecker(stop), feeds) == expected


def test_held_text_comes_once_it_is_harmless() -> None:
    checker = StopChecker(("STOP",))
    assert checker.feed("go ST") == Checked("go ")
    assert checker.feed("ART S") == Checked("START ")
    assert checker.feed("") == Checked("")
    assert checker.flush() == "S"


def test_include_keeps_the_stop_string_and_nothing_after() -> None:
    assert StopChecker(("b",), include=True).feed("abc") == Checked("ab", "b")


def test_inactive_text_passes_and_a_straddling_match_counts() -> None:
    checker = StopChecker(("ab",))
    assert checker.feed("ab a", active=False) == Checked("ab ")
    assert checker.feed("b!") == Checked("", "ab")
    complete = StopChecker(("ab",))
    assert complete.feed("ab", active=False) == Checked("ab")
    assert complete.feed("c") == Checked("c")


def test_after_a_match_nothing_is_shown() -> None:
    checker = StopChecker(("b",))
    assert checker.feed("abc") == Checked("a", "b")
    assert checker.feed("more") == Checked("", "b")
    assert checker.flush() == ""
