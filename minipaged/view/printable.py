"""Text that is safe to print. A model may generate any characters, including escape sequences."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Control characters, format characters, surrogate, private and unassigned characters, and the two separators
# that break a line. The format characters include marks that reverse the direction of writing.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Some scripts use joiners within words, and emoji contain them.
_SAFE_FORMATS = frozenset("\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}")


def printable(text: str, keep: str = "") -> str:
    """`text`, where U+FFFD replaces each character that could disturb a terminal.

    Each character is checked on its own, so a text may also be given in pieces.

    Args:
        text: the text.
        keep: characters that are never replaced, such as `"\\n\\t"`.

    >>> printable("a\\x1b[2Jb")
    'a\ufffd[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or _is_safe(c) else REPLACEMENT for c in text)


def one_line(text: str) -> str:
    """`text` on one line: white space becomes single spaces, and the rest is made printable.

    >>> one_line("a\\n\\n  b\\x07")
    'a b\ufffd'
    """
    return printable(" ".join(text.split()))


def _is_safe(character: str) -> bool:
    return character in _SAFE_FORMATS or unicodedata.category(character) not in _UNSAFE
