"""Chooses the stories that are fit for training, and counts the reasons for dropping the others.

    python -m tools.tiny.clean SHARDS FOLDER

The command reads all shards of a folder and writes `train.jsonl` and `heldout.jsonl`. Each line is one
`{"text": ...}`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.tiny.repeats import before_repeat, has_repeat, sentences, words
from tools.tiny.shards import Story, read_shard

FEWEST_WORDS, MOST_WORDS = 40, 220
REPEATED_WORDS = 6
GRAM = 8
"""Near duplicates are found by comparing runs of this many words."""

MOST_KNOWN = 0.25
"""A story is a near duplicate if a larger share of its runs occurs in earlier stories."""

HELD_OUT = 0.03
"""Share of stories that are not used for training."""

_PLAIN = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "—": ", ", "–": "-", "…": "...", "\xa0": " ", "é": "e"}
)
_META = re.compile(
    r"\b(stor(y|ies) (is|was|has|had|ends|begins|teaches|tells|shows|takes|continues|about a)"
    r"|(this|in the|our) story|the (moral|reader|author|plot|main character)|as an ai|language model"
    r"|assistant|^here (is|are)|^sure|chapter|title|prompt|paragraph)\b"
    r"|the end[.!]?\"?$"
)
_UNFIT = re.compile(
    r"\b(kill(s|ed|ing|er)?|murder\w*|blood\w*|dead|die[sd]?|dying|death|corpse|suicid\w*|gun(s|man)?|bomb\w*"
    r"|weapon\w*|shoot\w*|stab\w*|tortur\w*|terroris\w*|drunk\w*|beer|wine|alcohol\w*|drugs?|cigarettes?"
    r"|tobacco|sex\w*|naked|nude|porn\w*|rape\w*|breasts?|pregnan\w*|abus\w*|hell|damn\w*|demon\w*|satan\w*"
    r"|devil\w*|nazi\w*|slave\w*|prostitut\w*|idiot|stupid|hate[sd]?|cancer|virus|therap\w*|depress\w*"
    r"|anxiety|divorce\w*|funeral|grief|president|police\w*|government|god|jesus|christian\w*|muslim\w*"
    r"|bitch\w*|shit\w*|fuck\w*|whore\w*)\b"
)
_MARKUP = re.compile(r"[*#_<>\[\]{}|\\/=+~^@$%&`;()]|:\s*\n|https?|^\s*-", re.MULTILINE)
_SHOUTED = re.compile(r"\b[A-Z]{3,}\b")


@dataclass(frozen=True)
class Cleaned:
    """The result of cleaning.

    Attributes:
        kept: the texts of the kept stories, in the order of the stories.
        dropped: the number of dropped stories for each reason.
    """

    kept: list[str]
    dropped: Counter[str]


def clean(stories: Iterable[Story]) -> Cleaned:
    """Drop stories that are unfit, damaged, or near duplicates of earlier ones."""
    kept: list[str] = []
    dropped: Counter[str] = Counter()
    known: set[int] = set()
    for story in stories:
        text = normalise(story.text)
        if story.finish_reason != "stop":  # cut off, so keep only whole sentences
            text = before_repeat(text, REPEATED_WORDS)
        reason = fault(text)
        # Openings are drawn from short lists. They say nothing about whether a story is new.
        own = words(text)[len(words(story.opening)) :]
        grams = {_hash(" ".join(own[i : i + GRAM])) for i in range(len(own) - GRAM + 1)}
        if reason is None and len(grams & known) > MOST_KNOWN * len(grams):
            reason = "near duplicate"
        if reason is not None:
            dropped[reason] += 1
            continue
        known |= grams
        kept.append(text)
    return Cleaned(kept, dropped)


def normalise(text: str) -> str:
    """Normalise to ASCII quotes and dashes, regular spaces, and one empty line between paragraphs."""
    text = text.translate(_PLAIN)
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" ?\n\s*", "\n\n", text)
    text = re.sub(r" +,", ",", text)
    return re.sub(r"(?<=[a-z])([,.!?])(?=[A-Za-z])", r"\1 ", text).strip()


def fault(text: str) -> str | None:
    """Why a normalised story is unfit by itself, or `None` if it is fit."""
    listed = words(text)
    lower = text.lower()
    if not text.isascii() or not text.replace("\n", "").isprintable():
        return "not ASCII"
    if any(character.isdigit() for character in text):
        return "digits"
    if _MARKUP.search(text) or _SHOUTED.search(text):
        return "markup"
    if _META.search(lower):
        return "about itself"
    if _UNFIT.search(lower):
        return "unfit subject"
    if not FEWEST_WORDS <= len(listed) <= MOST_WORDS:
        return "length"
    if any(not paragraph.endswith((".", "!", "?", '"')) for paragraph in text.split("\n\n")):
        return "heading or broken end"
    if any(paragraph.count('"') % 2 for paragraph in text.split("\n\n")):
        return "quotation not closed"
    if _repeats(text, listed):
        return "repetition"
    return None


def _repeats(text: str, listed: list[str]) -> bool:
    said = Counter(" ".join(words(sentence)) for sentence in sentences(text))
    return (
        has_repeat(listed, REPEATED_WORDS)
        or any(count > 1 and len(sentence.split()) > 2 for sentence, count in said.items())
        or len(set(listed)) < 0.4 * len(listed)
    )


def is_held_out(text: str) -> bool:
    """Whether a story is held out. Only its text decides, so a longer corpus is split in the same way."""
    return _hash(text) < HELD_OUT * 2**64


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Write the texts, one JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def read_texts(path: Path) -> list[str]:
    """Read a file that `write_texts` has written."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Choose the stories to train on.")
    parser.add_argument("shards", type=Path, help="folder with shard-*.jsonl")
    parser.add_argument("folder", type=Path, help="for train.jsonl and heldout.jsonl")
    arguments = parser.parse_args()
    # Sorted, because the order in which stories end depends on the batch.
    stories = [
        story
        for path in sorted(arguments.shards.glob("shard-*.jsonl"))
        for story in sorted(read_shard(path), key=lambda story: story.number)
    ]
    cleaned = clean(stories)
    write_texts(arguments.folder / "train.jsonl", (text for text in cleaned.kept if not is_held_out(text)))
    write_texts(arguments.folder / "heldout.jsonl", (text for text in cleaned.kept if is_held_out(text)))
    table = Table(title=f"{len(stories):,} stories", title_justify="left", box=None, show_header=False)
    table.add_row("kept", f"{len(cleaned.kept):,}")
    for reason, count in cleaned.dropped.most_common():
        table.add_row(reason, f"{count:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
