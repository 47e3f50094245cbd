"""Changes the names in a story, which helps when the corpus is small.

A model that sees a story ten times learns it by heart. If the names differ each time, the model has to look
back in the story for the names.
"""

from __future__ import annotations

import random
import re

from tools.tiny.prompts import BOYS, GIRLS, PETS

_WORDS_AS_WELL = {"Will"}
"""Names that are also common words. "Will" begins questions, so it is not treated as a name."""
_LISTS = tuple(tuple(name for name in names if name not in _WORDS_AS_WELL) for names in (GIRLS, BOYS, PETS))
_LIST_OF = {name: names for names in _LISTS for name in names}
_NAME = re.compile(rf"\b({'|'.join(_LIST_OF)})\b")


def renamed(text: str, rng: random.Random) -> str:
    """The text with its names replaced by others of the same list. Equal names get equal replacements."""
    present = sorted(set(_NAME.findall(text)))
    new: dict[str, str] = {}
    for names in _LISTS:
        old = [name for name in present if _LIST_OF[name] is names]
        new |= dict(zip(old, rng.sample(names, len(old)), strict=True))
    return _NAME.sub(lambda match: new[match[0]], text)
