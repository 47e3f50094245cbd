"""Two small tokenizers, made in code: the two ways in which tokenizers represent bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

SPECIALS = ["<s>", "</s>"]


@dataclass(frozen=True)
class SpotTokenizer:
    """A tokenizer, and the kinds of its tokens.

    Attributes:
        backend: the tokenizer.
        byte: the token id of each byte.
        words: all other tokens that are not special.
        specials: the special tokens.
    """

    backend: Tokenizer
    byte: dict[int, int]
    words: list[int]
    specials: list[int]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def encode(self, text: str) -> list[int]:
        return self.backend.encode(text).ids

    def spell(self, data: bytes) -> list[int]:
        """One token for each byte."""
        return [self.byte[value] for value in data]


def _byte_characters() -> dict[int, str]:
    """GPT-2's printable character for each byte: the byte itself if printable, else one from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in plain]
    return {**{v: chr(v) for v in plain}, **{v: chr(0x100 + i) for i, v in enumerate(others)}}


def byte_level() -> SpotTokenizer:
    """A tokenizer like those of GPT-2, Llama 3 and Qwen. Some tokens hold only a part of a character."""
    character = _byte_characters()
    vocab = {character[value]: value for value in range(256)}
    merges: list[tuple[str, str]] = []
    steps = [
        *[(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"\xe2", b"\x82"), (b"\xe2\x82", b"\xac")],
        *[(b"\xac", b"\xe2"), (b"\xac\xe2", b"\x82"), (b"\xf0", b"\x9f"), (b"\xf0\x9f", b"\x98")],
        *[(b"\x80", b" "), (b"a", b"\xe4"), (b"\xbd", b"\xa0"), (b"\xc3", b"\xa9"), (b"\xff", b"\xff")],
    ]
    for left, right in steps:
        pair = tuple("".join(character[value] for value in part) for part in (left, right))
        vocab["".join(pair)] = len(vocab)
        merges.append((pair[0], pair[1]))
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    words = list(range(256, len(vocab)))
    backend.add_special_tokens(SPECIALS)
    specials = [len(vocab), len(vocab) + 1]
    return SpotTokenizer(backend, {value: value for value in range(256)}, words, specials)


def byte_fallback(*, metaspace: bool = False) -> SpotTokenizer:
    """A tokenizer like Llama 2's: words with "▁" for a space; bytes for characters that have no token.

    `metaspace` uses the form of newer tokenizer files, where the first token loses all leading spaces.
    """
    names = ["▁", "▁Hello", "▁the", "l", "o", "é", "你", "▁▁▁", "!", "\n", "▁a", "b"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for value in range(256):
        vocab[f"<0x{value:02X}>"] = len(vocab)
    words = list(range(len(vocab), len(vocab) + len(names)))
    vocab |= dict(zip(names, words, strict=True))
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.add_special_tokens(SPECIALS)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if metaspace:
        parts = [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always"), decoders.Fuse()]
    else:
        parts = [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    backend.decoder = decoders.Sequence(parts)
    return SpotTokenizer(backend, {value: 3 + value for value in range(256)}, words, [1, 2])
