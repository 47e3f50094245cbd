"""Text to token ids and back: a thin wrapper around a Hugging Face fast tokenizer, with checks.

It raises our errors for texts that cannot be encoded, and hides the parts of the Hugging Face interface
(padding, truncation, batches, tensors) that an engine does not use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from tokenizers import Tokenizer as Backend
from tokenizers import decoders

from minipaged.errors import PromptError, UnsupportedModelError

MOST_TOKENS = 2**32
"""The number of possible ids. `tokenizers` uses ids of 32 bits, and raises an error for larger ids."""

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class ChatMessage(TypedDict):
    """One turn of a conversation. `role` is usually `system`, `user` or `assistant`."""

    role: str
    content: str


class Tokenizer:
    """A model's tokenizer.

    Args:
        backend: turns text into token ids and back. The tokenizer changes it: truncation and padding, which
            its file may ask for, are turned off.
        load_hf: returns transformers' version of the same tokenizer, which renders conversations. It is
            called for the first conversation, because importing transformers takes seconds.
        eos_token_id: the tokenizer's own end-of-text token. The model's configuration may name more of
            them.
    """

    def __init__(
        self, backend: Backend, load_hf: Callable[[], PreTrainedTokenizerFast], eos_token_id: int | None
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._load_hf = load_hf
        self.eos_token_id = eos_token_id
        self._texts: dict[bool, dict[int, str]] = {True: {}, False: {}}

    @classmethod
    def from_hf(cls, hf: PreTrainedTokenizerFast) -> Tokenizer:
        """Wrap a transformers tokenizer.

        Raises:
            UnsupportedModelError: the tokenizer is written in Python only, and does not use `tokenizers`.
        """
        if not getattr(hf, "is_fast", False):
            raise UnsupportedModelError(
                f"{type(hf).__name__} is not a fast tokenizer. Supported: tokenizers with a tokenizer.json."
            )
        token_id = hf.eos_token_id
        return cls(hf.backend_tokenizer, lambda: hf, token_id if isinstance(token_id, int) else None)

    @property
    def vocab_size(self) -> int:
        """Number of token ids, including added and special tokens. The model may have a few more."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that turns a conversation into a prompt, or `None`."""
        template = self._hf.chat_template
        if isinstance(template, Mapping):  # several templates, by name
            template = template.get("default")
        return template or None

    @cached_property
    def _hf(self) -> PreTrainedTokenizerFast:
        return self._load_hf()

    @cached_property
    def special_token_ids(self) -> Mapping[str, int]:
        """Maps the names of the special tokens, which `decode` can skip, to their ids."""
        added = self._backend.get_added_tokens_decoder().items()
        return {token.content: token_id for token_id, token in added if token.special}

    @cached_property
    def max_token_chars(self) -> int:
        """The most characters of text that can become one token.

        A text of n characters therefore has at least n / max_token_chars tokens. So a huge text can be
        refused without tokenising it. The value is `sys.maxsize` if a token may stand for any number
        of characters.
        """
        model = self._backend.model
        fuses_unknown = getattr(model, "fuse_unk", False) and not getattr(model, "byte_fallback", False)
        added = self._backend.get_added_tokens_decoder().values()
        if fuses_unknown or any(token.lstrip or token.rstrip for token in added):
            return sys.maxsize
        # A byte-level vocabulary writes one character for each byte of a token. So a token's name is at
        # least as long as its text.
        longest = max((len(token) for token in self._backend.get_vocab(with_added_tokens=True)), default=1)
        # Canonical composition shrinks a text to a quarter at most (U+1F82 decomposes into four).
        return longest if self._backend.normalizer is None else 4 * longest

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds by default.

        Raises:
            PromptError: `text` is not a string, or has characters that UTF-8 cannot represent (lone
                surrogates).
        """
        _check_encodable(text)
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of some token ids. Bytes that are not UTF-8 become U+FFFD. Unknown ids are left out.

        Spaces around punctuation are not "cleaned up", so the text only grows when tokens are added.
        """
        known = [token_id for token_id in token_ids if 0 <= token_id < MOST_TOKENS]
        return self._backend.decode(known, skip_special_tokens=skip_special_tokens)

    def texts_of_tokens(self, *, skip_special_tokens: bool) -> dict[int, str] | None:
        """A dict of the texts of single tokens, which callers read and fill.

        The result is `None` if a token's text depends on the tokens around it. With a byte-level decoder it
        does not: the bytes of several tokens are the bytes of each, one after the other.
        """
        return self._texts[skip_special_tokens] if self._is_byte_level else None

    @cached_property
    def _is_byte_level(self) -> bool:
        return isinstance(self._backend.decoder, decoders.ByteLevel)

    def apply_chat_template(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation, up to where the assistant's next turn begins.

        Raises:
            PromptError: there are no messages, a message lacks a role or a text, the tokenizer has no chat
                template, or the template refuses the conversation.
        """
        if self.chat_template is None:
            raise PromptError(
                "This model's tokenizer has no chat template. Use a model that was tuned for chat, or give "
                "generate() a prompt."
            )
        if not messages:
            raise PromptError("A conversation needs at least one message.")
        plain: list[dict[str, str]] = []
        for i, message in enumerate(messages):
            if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
                raise PromptError(f"Message {i} must have a 'role' and a 'content'; got {message!r}.")
            _check_encodable(message["role"])
            _check_encodable(message["content"])
            plain.append({"role": message["role"], "content": message["content"]})
        try:
            text = self._hf.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program, which may raise any error
            raise PromptError(f"The chat template refuses this conversation: {error}") from error
        assert isinstance(text, str)
        # The template writes the special tokens itself.
        return self.encode(text, add_special_tokens=False)


def _check_encodable(text: object) -> None:
    if not isinstance(text, str):
        raise PromptError(f"A text must be a str, not {type(text).__name__}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(
            f"The text cannot be encoded: character {error.start} is {text[error.start]!r}, a lone "
            "surrogate. Decode the input with errors='replace' first."
        ) from error
