"""Finds the point where a text begins to repeat itself."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z0-9']+")
# A sentence ends with a mark and perhaps a closing quote, before white space or the end.
_SENTENCE = re.compile(r".*?[.!?][\"']?(?=\s|$)", re.DOTALL)


def words(text: str) -> list[str]:
    """The words in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def sentences(text: str) -> list[str]:
    """The complete sentences, each with the white space before it. An incomplete last one is left out."""
    return _SENTENCE.findall(text)


def has_repeat(listed: list[str], length: int) -> bool:
    """Whether some run of `length` words occurs twice."""
    grams = [tuple(listed[i : i + length]) for i in range(len(listed) - length + 1)]
    return len(set(grams)) < len(grams)


def before_repeat(text: str, length: int) -> str:
    """The complete sentences before the first one that repeats `length` words in a row.

    A quotation is either kept whole or left out.
    """
    kept = read = ""
    for sentence in sentences(text):
        read += sentence
        if has_repeat(words(read), length):
            break
        if read.count('"') % 2 == 0:
            kept = read
    return kept
