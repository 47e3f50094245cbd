"""Detokenizer: the right text, as soon as it is final, at a bounded cost per token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.engine.detokenizer import Detokenizer
from tests.engine.spot_tokenizers import SpotTokenizer, byte_fallback, byte_level
from tests.long_tests import examples

BYTES = byte_level()
FALLBACKS = {"strip": byte_fallback(), "metaspace": byte_fallback(metaspace=True)}
FALLBACK = FALLBACKS["strip"]
FFFD = "\N{REPLACEMENT CHARACTER}"

CHARACTERS = st.one_of(
    st.sampled_from("ab the\n é€你好😀\u200d\u0301" + FFFD),
    st.integers(0, 0x10FFFF).filter(lambda point: not 0xD800 <= point < 0xE000).map(chr),
)
TEXTS = st.lists(CHARACTERS, max_size=30).map("".join)

# Bytes for every rule of UTF-8: lead bytes, continuations, overlong forms, surrogates, past U+10FFFF.
AWKWARD = b"\xe2\x82\xac\xf0\x9f\x98\x80\xff\xed\xa0\xc0\xf4\x90\xbfa \xc3\xa9"


def pieces(
    tokenizer: SpotTokenizer, prompt: Sequence[int], output: Sequence[int], *, skip: bool = True
) -> list[str]:
    detokenizer = Detokenizer(partial(tokenizer.decode, skip_special_tokens=skip), prompt)
    return [*[detokenizer.append(token_id) for token_id in output], detokenizer.flush()]


def byte_tokens() -> st.SearchStrategy[list[int]]:
    token = st.one_of(
        st.sampled_from(AWKWARD).map(BYTES.byte.__getitem__),
        st.integers(0, 255).map(BYTES.byte.__getitem__),
        st.sampled_from(BYTES.words),
        st.sampled_from(BYTES.specials),
    )
    return st.lists(token, max_size=80)


@settings(max_examples=300, deadline=None)
@given(byte_tokens(), byte_tokens(), st.booleans())
def test_byte_level_any_ids(prompt: list[int], output: list[int], skip: bool) -> None:
    assert "".join(pieces(BYTES, prompt, output, skip=skip)) == BYTES.decode(output, skip)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(AWKWARD), max_size=150), st.integers(1, 9))
def test_byte_level_long_invalid_runs(data: list[int], repeat: int) -> None:
    output = BYTES.spell(bytes(data)) * repeat
    assert "".join(pieces(BYTES, [], output)) == BYTES.decode(output)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_byte_level_text(prompt: str, text: str) -> None:
    assert "".join(pieces(BYTES, BYTES.encode(prompt), BYTES.encode(text))) == text


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_never_half_a_character_and_never_late(text: str) -> None:
    """After each token all complete characters are returned. Only U+FFFD at the end may be held back."""
    output = BYTES.spell(text.encode())
    shown = ""
    detokenizer = Detokenizer(BYTES.decode)
    for end, token_id in enumerate(output, start=1):
        shown += detokenizer.append(token_id)
        whole = text.encode()[:end].decode(errors="ignore")
        assert whole.startswith(shown)
        assert shown == whole or whole[len(shown) :].strip(FFFD) == ""


def fallback_segments() -> st.SearchStrategy[list[list[int] | str]]:
    """Words, special tokens, and runs of bytes that spell text."""
    return st.lists(
        st.one_of(
            st.sampled_from([*FALLBACK.words, *FALLBACK.specials]).map(lambda token: [token]),
            st.lists(CHARACTERS.filter(lambda c: c != FFFD), min_size=1, max_size=4).map("".join),
        ),
        max_size=25,
    )


def spelled(segments: list[list[int] | str]) -> list[int]:
    ids: list[int] = []
    for segment in segments:
        ids += FALLBACK.spell(segment.encode()) if isinstance(segment, str) else segment
    return ids


@pytest.mark.parametrize("name", FALLBACKS)
@settings(max_examples=examples(200), deadline=None)
@given(fallback_segments(), fallback_segments(), st.booleans())
def test_fallback_adds_what_decoding_everything_adds(
    name: str, prompt: list[list[int] | str], output: list[list[int] | str], skip: bool
) -> None:
    tokenizer = FALLBACKS[name]
    before, after = spelled(prompt), spelled(output)
    found = "".join(pieces(tokenizer, before, after, skip=skip))
    assert tokenizer.decode(before, skip) + found == tokenizer.decode(before + after, skip)


def fallback_reading(output: Sequence[int]) -> str:
    """The expected text for any ids after visible text.

    In each run of bytes, the longest valid beginning is text, and every byte after it is U+FFFD.
    """
    text = ""
    run = b""
    value_of = {token: value for value, token in FALLBACK.byte.items()}
    for token in [*(t for t in output if t not in FALLBACK.specials), None]:
        if token in value_of:
            run += bytes([value_of[token]])
            continue
        valid = run.decode(errors="ignore")
        while run and not run.startswith(valid.encode()):
            valid = valid[:-1]
        text += valid + FFFD * (len(run) - len(valid.encode()))
        run = b""
        if token is not None:
            text += FALLBACK.decode([FALLBACK.words[3], token])[1:]
    return text


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(AWKWARD).map(FALLBACK.byte.__getitem__),
            st.sampled_from([*FALLBACK.words, *FALLBACK.specials]),
        ),
        max_size=90,
    )
)
def test_fallback_any_ids(output: list[int]) -> None:
    assert "".join(pieces(FALLBACK, [FALLBACK.words[3]], output)) == fallback_reading(output)


def test_space_as_a_byte_after_a_long_character() -> None:
    """The decoder drops a leading space, even one that is a byte token. So a space cannot be the context."""
    for before in range(8):
        output = FALLBACK.spell(("a" * before + " 𐀀 b" * 3 + "𐀀 ").encode()) + [FALLBACK.words[1]] * 2
        assert "".join(pieces(FALLBACK, [], output)) == FALLBACK.decode(output)


def test_leading_space_depends_on_the_prompt() -> None:
    hello = FALLBACK.words[1]
    assert pieces(FALLBACK, [], [hello, hello]) == ["Hello", " Hello", ""]
    assert pieces(FALLBACK, FALLBACK.specials, [hello]) == ["Hello", ""]
    # A prompt of only a space has no text, but its space is the one that the decoder drops.
    assert pieces(FALLBACK, [FALLBACK.words[0], 1, 1, 1, 1, 1], [hello]) == [" Hello", ""]
    for prompt in ([hello], [hello, 1, 1, 1, 1, 1, 1], FALLBACK.spell("你".encode())):
        assert pieces(FALLBACK, prompt, [hello]) == [" Hello", ""]


def test_prompt_that_ends_inside_a_character_is_not_continued() -> None:
    euro = "€".encode()
    for tokenizer, word in ((BYTES, BYTES.byte[0x62]), (FALLBACK, FALLBACK.words[-1])):
        prompt = tokenizer.spell(b"abc" + euro[:2])
        assert "".join(pieces(tokenizer, prompt, [*tokenizer.spell(euro[2:]), word])) == FFFD + "b"


def test_an_unfinished_character_waits_and_comes_with_the_flush() -> None:
    output = BYTES.spell("a😀".encode()[:4])
    assert pieces(BYTES, [], output) == ["a", "", "", "", FFFD]
    detokenizer = Detokenizer(BYTES.decode)
    detokenizer.append(output[1])
    assert [detokenizer.flush(), detokenizer.flush()] == [FFFD, ""]


NUM = 3000
STREAMS = {
    "text": b"the quick brown \xe2\x82\xac fox " * NUM,
    "no spaces": "你好世界".encode() * NUM,
    "four bytes each": "😀".encode() * NUM,
    "invalid": b"\xff" * NUM,
    "continuations": b"\x80" * NUM,
    "leads": b"\xe2" * NUM,
    "unfinished": b"\xf0\x9f\x98" * NUM,
    "poisoned, then valid": b"\xff" + "你".encode() * NUM,
    "lead at the cut": b"\xff\xff\xff\xe2" + b"\x80" * NUM,
    "spaces": b" " * NUM,
}


@pytest.mark.long(keep=10)
@pytest.mark.parametrize("tokenizer", [BYTES, *FALLBACKS.values()], ids=["bytes", *FALLBACKS])
@pytest.mark.parametrize("name", [*STREAMS, "specials", "special inside", "words", "always inside"])
def test_work_per_token_is_bounded(tokenizer: SpotTokenizer, name: str) -> None:
    streams = {key: tokenizer.spell(data) for key, data in STREAMS.items()} | {
        "specials": tokenizer.specials * NUM,
        "special inside": [tokenizer.byte[0xE2], *tokenizer.specials * NUM],
        "words": tokenizer.words * NUM,
        # The last token of each round ends inside a character, and the next token completes that character.
        "always inside": [tokenizer.byte[0xE2], tokenizer.byte[0x82], *[tokenizer.words[6]] * NUM],
    }
    output = streams[name][:NUM]
    passed = longest = 0

    def counting(token_ids: Sequence[int]) -> str:
        nonlocal passed, longest
        passed += len(token_ids)
        longest = max(longest, len(token_ids))
        return tokenizer.decode(token_ids)

    detokenizer = Detokenizer(counting, [tokenizer.words[3]])
    worst = 0
    text: list[str] = []
    for token_id in output:
        before = passed
        text.append(detokenizer.append(token_id))
        worst = max(worst, passed - before)
    text.append(detokenizer.flush())
    assert longest <= 32
    assert worst <= 64
    assert passed <= 32 * len(output)
    if tokenizer is BYTES:
        assert "".join(text) == tokenizer.decode(output)
    if tokenizer is FALLBACK:
        assert "".join(text) == fallback_reading(output)


def test_a_long_prompt_is_looked_at_from_its_end() -> None:
    passed = 0

    def counting(token_ids: Sequence[int]) -> str:
        nonlocal passed
        passed += len(token_ids)
        return BYTES.decode(token_ids)

    Detokenizer(counting, BYTES.spell(b"word " * 10_000))
    assert passed <= 4
