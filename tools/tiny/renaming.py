"""The same story about somebody else: what a small corpus has instead of more stories.

A model that meets a story ten times learns it by heart. With other names each time, it has to look back for
who the story is about.
"""

from __future__ import annotations

import random
import re

from tools.tiny.prompts import BOYS, GIRLS, PETS

_WORDS_AS_WELL = {"Will"}
"""Begins questions; so it is nobody's name here."""
_LISTS = tuple(tuple(name for name in names if name not in _WORDS_AS_WELL) for names in (GIRLS, BOYS, PETS))
_LIST_OF = {name: names for names in _LISTS for name in names}
_NAME = re.compile(rf"\b({'|'.join(_LIST_OF)})\b")


def renamed(text: str, rng: random.Random) -> str:
    """The text with every name of a list exchanged for another of the same list, each always for the same."""
    present = sorted(set(_NAME.findall(text)))
    new: dict[str, str] = {}
    for names in _LISTS:
        old = [name for name in present if _LIST_OF[name] is names]
        new |= dict(zip(old, rng.sample(names, len(old)), strict=True))
    return _NAME.sub(lambda match: new[match[0]], text)
