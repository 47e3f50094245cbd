"""The tokenizer: its results, and the input that it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, normalizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from minipaged.errors import PromptError, UnsupportedModelError
from minipaged.loading.folder import read_tokenizer
from minipaged.model.tokenizer import ChatMessage, Tokenizer
from tests.byte_tokenizer import byte_tokenizer
from tests.oracle import add_byte_tokenizer, make_model

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "{{ m.role }}:{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return add_byte_tokenizer(make_model(tmp_path_factory.mktemp("chat") / "m"), TEMPLATE)


@given(st.text())
def test_bytes_and_back(text: str) -> None:
    tokenizer = byte_tokenizer()
    if "<|endoftext|>" in text:
        return
    token_ids = tokenizer.encode(text)
    assert token_ids == list(text.encode())
    assert tokenizer.decode(token_ids) == text
    assert len(text) <= len(token_ids) * tokenizer.max_token_chars


def test_special_tokens() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.vocab_size == 257
    assert tokenizer.eos_token_id == 256
    assert tokenizer.encode("a<|endoftext|>") == [97, 256]
    assert tokenizer.decode([97, 256]) == "a"
    assert tokenizer.decode([97, 256], skip_special_tokens=False) == "a<|endoftext|>"


def test_half_a_character_and_unknown_ids() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.decode([0xC3]) == "\ufffd"
    assert tokenizer.decode([97, 5000, 98]) == "ab"
    assert tokenizer.decode([-1, 97, 2**32, 98, 10**30]) == "ab"
    assert tokenizer.decode([]) == ""


def test_texts_of_tokens_are_remembered_only_where_they_stand_alone() -> None:
    """Llama 2's decoder drops the first token's space, so a text depends on what is before the token."""
    tokenizer = byte_tokenizer()
    shown, skipped = (tokenizer.texts_of_tokens(skip_special_tokens=skip) for skip in (False, True))
    assert shown == skipped == {}
    assert shown is not skipped, "a special token has a text in one of them"
    spaces = Backend(WordLevel({"\u2581a": 0}, unk_token=None))
    spaces.decoder = decoders.Metaspace()
    assert (spaces.decode([0]), spaces.decode([0, 0])) == ("a", "a a")
    other = Tokenizer(spaces, PreTrainedTokenizerFast, None)
    assert other.texts_of_tokens(skip_special_tokens=True) is None


@pytest.mark.parametrize("text", ["\ud800", "fine until here \udfff", 5, None, b"bytes"])
def test_texts_that_cannot_be_encoded(text: object) -> None:
    with pytest.raises(PromptError):
        byte_tokenizer().encode(text)  # pyright: ignore[reportArgumentType]


def test_the_error_says_where() -> None:
    with pytest.raises(PromptError, match=r"character 3 is '\\ud83d'"):
        byte_tokenizer().encode("abc\ud83d")


def test_special_tokens_are_added_as_the_tokenizer_wants() -> None:
    backend = Backend(WordLevel({"<s>": 0, "a": 1}, unk_token="a"))
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = Tokenizer.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>"))
    assert tokenizer.encode("a") == [0, 1]
    assert tokenizer.encode("a", add_special_tokens=False) == [1]
    assert tokenizer.eos_token_id is None


def test_encoding_equals_transformers(chat_folder: Path) -> None:
    tokenizer, theirs = read_tokenizer(chat_folder), AutoTokenizer.from_pretrained(chat_folder)
    assert tokenizer is not None
    for text in ("", "Hello", "naïve 日本語 🎉", " a  b\n"):
        assert tokenizer.encode(text) == theirs.encode(text)


def test_chat_equals_transformers(chat_folder: Path) -> None:
    tokenizer, theirs = read_tokenizer(chat_folder), AutoTokenizer.from_pretrained(chat_folder)
    assert tokenizer is not None
    assert tokenizer.chat_template == TEMPLATE
    messages: list[ChatMessage] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "é?"},
    ]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert tokenizer.apply_chat_template(messages) == expected


def test_chats_that_are_refused(chat_folder: Path) -> None:
    tokenizer = read_tokenizer(chat_folder)
    assert tokenizer is not None
    with pytest.raises(PromptError, match="no chat template"):
        byte_tokenizer().apply_chat_template([{"role": "user", "content": "Hi"}])
    with pytest.raises(PromptError, match="at least one message"):
        tokenizer.apply_chat_template([])
    with pytest.raises(PromptError, match="no such role"):
        tokenizer.apply_chat_template([{"role": "bad", "content": "Hi"}])
    with pytest.raises(PromptError, match="lone surrogate"):
        tokenizer.apply_chat_template([{"role": "user", "content": "\ud800"}])
    with pytest.raises(PromptError, match="Message 1"):
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}, {"role": "user"}])  # pyright: ignore
    with pytest.raises(PromptError, match="must be a str"):
        tokenizer.apply_chat_template([{"role": "user", "content": 3}])  # pyright: ignore


def test_longest_token() -> None:
    def longest(backend: Backend) -> int:
        return Tokenizer.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend)).max_token_chars

    vocab = {"a": 0, "aa": 1, "aaaa": 2}
    assert longest(Backend(BPE(vocab=vocab, merges=[("a", "a"), ("aa", "aa")]))) == 4
    normalizing = Backend(BPE(vocab=vocab, merges=[]))
    normalizing.normalizer = normalizers.NFC()
    assert longest(normalizing) == 16
    # One unknown token may represent any number of characters.
    fusing = Backend(BPE(vocab=vocab | {"<unk>": 3}, merges=[], unk_token="<unk>", fuse_unk=True))
    assert longest(fusing) == sys.maxsize
    # This one swallows the spaces before it, however many.
    stripping = Backend(BPE(vocab=vocab, merges=[]))
    stripping.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    assert longest(stripping) == sys.maxsize


def test_folders_without_a_tokenizer_or_with_a_broken_one(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    assert read_tokenizer(folder) is None
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match="cannot be loaded"):
        read_tokenizer(folder)


PLAIN = {"backend": "tokenizers", "tokenizer_class": "TokenizersBackend", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("config", "plain"),
    [
        (PLAIN, True),
        ({**PLAIN, "model_max_length": 64, "pad_token": "</s>"}, True),
        ({**PLAIN, "eos_token": "d"}, False),  # a word that becomes a special token
        ({**PLAIN, "add_bos_token": True, "bos_token": "<s>"}, False),
        ({**PLAIN, "backend": None}, False),
        ({**PLAIN, "tokenizer_class": "LlamaTokenizerFast"}, False),
    ],
)
def test_a_folder_without_more_than_tokenizer_json_reads_as_in_transformers(
    tmp_path: Path, config: dict[str, object], plain: bool
) -> None:
    backend = Backend(BPE(vocab={"a": 0, "b": 1, "c": 2, "d": 3}, merges=[]))
    backend.add_special_tokens(["<s>", "</s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with patch("transformers.AutoTokenizer.from_pretrained", wraps=AutoTokenizer.from_pretrained) as asked:
        tokenizer = read_tokenizer(tmp_path)
    assert asked.called != plain
    assert tokenizer is not None
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("<s>abcd</s>") == theirs.encode("<s>abcd</s>")
    ids = [4, 0, 1, 2, 3, 5]
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert (tokenizer.eos_token_id, tokenizer.vocab_size) == (theirs.eos_token_id, len(theirs))


def test_a_file_that_asks_for_truncation_or_padding_is_not_obeyed() -> None:
    backend = Backend(BPE(vocab={"a": 0}, merges=[]))
    backend.enable_truncation(3)
    backend.enable_padding(length=5)
    tokenizer = Tokenizer.from_hf(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert tokenizer.encode("aaaa") == [0] * 4
    assert tokenizer.encode("a") == [0]
