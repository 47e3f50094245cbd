"""Tokenizers rebuilt from GGUF metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter
from tokenizers.pre_tokenizers import ByteLevel

from minipaged.errors import UnsupportedModelError
from minipaged.loading.gguf_file import GgufFile
from minipaged.loading.gguf_tokenizer import read_tokenizer
from minipaged.model.tokenizer import Tokenizer
from tests.loading.gguf_files import finish, write_vocabulary

BYTES = sorted(ByteLevel.alphabet())
SPACE = "\u0120"
MERGED = [f"{SPACE}{SPACE}", "12", "123", "1234", "ab", f"{SPACE}a", "e\u0301"]
MERGES = [f"{SPACE} {SPACE}", "1 2", "12 3", "123 4", "a b", f"{SPACE} a"]
TOKENS = [*BYTES, *MERGED[:-1], "<|end|>", "<think>"]
END, THINK = len(TOKENS) - 2, len(TOKENS) - 1
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def byte_level(path: Path, pre: str, *, bos: bool | None = None, template: str | None = None) -> Tokenizer:
    writer = GGUFWriter(path, "llama")
    kinds = [NORMAL] * (len(TOKENS) - 2) + [CONTROL, USER_DEFINED]
    write_vocabulary(writer, "gpt2", TOKENS, pre=pre, merges=MERGES, kinds=kinds)
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(END)
    if bos is not None:
        writer.add_add_bos_token(bos)
    if template is not None:
        writer.add_chat_template(template)
    finish(writer)
    tokenizer = read_tokenizer(GgufFile(path))
    assert tokenizer is not None
    return tokenizer


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [TOKENS[i].replace(SPACE, " ") for i in tokenizer.encode(text, add_special_tokens=False)]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["1234", "1"]),  # numbers whole
        ("smollm", ["1", "2", "3", "4", "1"]),  # digit by digit
        ("qwen2", ["1", "2", "3", "4", "1"]),
        ("llama-bpe", ["123", "4", "1"]),  # in threes
    ],
)
def test_numbers_are_cut_as_the_model_learned_them(tmp_path: Path, pre: str, expected: list[str]) -> None:
    assert pieces(byte_level(tmp_path / "t.gguf", pre), "12341") == expected


def test_spaces_before_a_digit_belong_together_in_smollm(tmp_path: Path) -> None:
    assert pieces(byte_level(tmp_path / "t.gguf", "smollm"), "b  1") == ["b", "  ", "1"]


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_bytes_and_back(tmp_path: Path, pre: str) -> None:
    tokenizer = byte_level(tmp_path / "t.gguf", pre)
    for text in ("", "ab  ab 12\n\n 3", "naïve 日本語 🎉", "don't DON'T"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_qwen_composes_characters(tmp_path: Path) -> None:
    assert byte_level(tmp_path / "t.gguf", "qwen2").encode("e\u0301") == byte_level(
        tmp_path / "u.gguf", "qwen2"
    ).encode("\u00e9")


def test_special_and_user_defined_tokens(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path / "t.gguf", "smollm")
    assert tokenizer.encode("<think>ab<|end|>") == [THINK, TOKENS.index("ab"), END]
    assert tokenizer.decode([THINK, TOKENS.index("ab"), END]) == "<think>ab"
    assert tokenizer.eos_token_id == END
    assert tokenizer.vocab_size == len(TOKENS)


@pytest.mark.parametrize(
    ("pre", "flag", "adds"),
    [
        ("smollm", None, False),
        ("smollm", True, True),
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
    ],
)
def test_the_first_token(tmp_path: Path, pre: str, flag: bool | None, adds: bool) -> None:
    tokenizer = byte_level(tmp_path / "t.gguf", pre, bos=flag)
    assert tokenizer.encode("ab") == [END] * adds + [TOKENS.index("ab")]


def test_chat_template(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    tokenizer = byte_level(tmp_path / "t.gguf", "llama-bpe", template=template)
    assert tokenizer.chat_template == template
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}]) == [TOKENS.index("ab"), END]


def test_sentencepiece(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "t.gguf", "llama")
    space = "\u2581"
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    merged = [space, "a", "b", f"{space}a", "ab", f"{space}ab"]
    scores = [0.0] * len(words) + [-10.0, -11.0, -12.0, -2.0, -3.0, -1.0]
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(merged)
    write_vocabulary(writer, "llama", [*words, *merged], kinds=kinds, scores=scores)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    finish(writer)
    tokenizer = read_tokenizer(GgufFile(tmp_path / "t.gguf"))
    assert tokenizer is not None
    start = len(words)
    assert tokenizer.encode("ab ab") == [1, start + 5, start + 5]
    assert tokenizer.decode(tokenizer.encode("ab \u00e9 ab")) == "ab \u00e9 ab"
    assert tokenizer.eos_token_id == 2


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'tekken'.*Supported: smollm, gpt-2"):
        byte_level(tmp_path / "t.gguf", "tekken")
    writer = GGUFWriter(tmp_path / "u.gguf", "llama")
    write_vocabulary(writer, "bert", ["a"])
    finish(writer)
    with pytest.raises(UnsupportedModelError, match="kind 'bert'"):
        read_tokenizer(GgufFile(tmp_path / "u.gguf"))


@pytest.mark.parametrize("merge", ["zz yy", "ab", ""])
def test_merges_of_what_is_no_token(tmp_path: Path, merge: str) -> None:
    writer = GGUFWriter(tmp_path / "t.gguf", "llama")
    write_vocabulary(writer, "gpt2", ["a", "b"])
    writer.add_token_merges([merge])
    finish(writer)
    with pytest.raises(UnsupportedModelError, match="a tokenizer that cannot be used"):
        read_tokenizer(GgufFile(tmp_path / "t.gguf"))


def test_a_file_without_a_tokenizer(tmp_path: Path) -> None:
    finish(GGUFWriter(tmp_path / "t.gguf", "llama"))
    assert read_tokenizer(GgufFile(tmp_path / "t.gguf")) is None
