"""A model may generate any characters, but none of them may control the terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from minipaged.view.printable import REPLACEMENT, one_line, printable


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    categories = {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    shown.encode("utf-8")


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 20))
def test_a_text_may_come_in_pieces(text: str, cut: int) -> None:
    assert printable(text[:cut], "\n") + printable(text[cut:], "\n") == printable(text, "\n")


@given(st.text(st.characters(exclude_categories=())))
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


def test_text_is_left_alone() -> None:
    for text in ("naïve café", "日本語", "👩‍👩‍👧 ok", "שלום", "[bold]"):
        assert printable(text) == text


def test_what_is_kept_is_kept() -> None:
    assert printable("a\n\tb\r", keep="\n\t") == f"a\n\tb{REPLACEMENT}"
    assert printable("\x1b[31m\u202eevil") == f"{REPLACEMENT}[31m{REPLACEMENT}evil"
