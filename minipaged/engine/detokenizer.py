"""Incremental detokenising: the text that each new token adds.

Tokens are not characters. A token may hold part of a UTF-8 character, and some decoders treat the first token
specially (Llama 2's drops a leading space). So decoding tokens one by one gives wrong text. Decoding all
tokens at every step takes quadratic time. The solution, as in vLLM (vllm/v1/engine/detokenizer.py), is to
decode a small window:

    window = context + pending

The *context* is a few tokens whose text was already returned. The *pending* tokens are those whose text may
still change. The new text is the part of the window's text that was not returned yet.

When may text still change? Bytes that do not form a complete character decode to U+FFFD. An unfinished
character has at most three bytes. So at most the last three U+FFFD may change, and all text before them is
final. `append` holds back these U+FFFD and nothing else.

Let "all" be the pieces from `append` and `flush`, joined. The class guarantees:

- Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2): all == decode(output ids), for any ids.
- SentencePiece with byte fallback (Llama 2, Mistral): decode(prompt) + all == decode(prompt + output), if the
  prompt does not end inside a character and each run of byte tokens is valid UTF-8. If any byte of a run is
  invalid, such a decoder turns each byte of the whole run into U+FFFD. That could change text which was
  already returned. So this class keeps the longest valid beginning of the run, and the bytes after it become
  U+FFFD.
- For each `append`, the number of tokens passed to `decode` is bounded by a constant, for any ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNFINISHED = 3  # the most bytes of an unfinished UTF-8 character
_MAX_CONTEXT = 6  # tokens; a longer context is cut, which costs at least one decode

# Many tokens are pending only while invalid bytes arrive. Then the middle ones are dropped. The first
# _HEAD and the last _TAIL tokens stay.
_HEAD = _UNFINISHED + 1  # four bytes that form no character: they keep a byte-fallback run invalid
_TAIL = 3 * _UNFINISHED + _UNFINISHED  # three U+FFFD of up to three bytes, and bytes that the cut may affect
_MAX_PENDING = _HEAD + _TAIL + 8  # cut at this length, so that only every eighth token needs a cut

Decode = Callable[[Sequence[int]], str]
"""Converts token ids to text. One such function either always skips special tokens or always shows them."""


class Detokenizer:
    """Decodes one sequence piece by piece.

    Args:
        decode: converts token ids to text. Decoding more tokens must only add text, except that U+FFFD at
            the end may change. (So `clean_up_tokenization_spaces` must be off.)
        prompt_token_ids: the prompt. Its last tokens are the first context. Its text is never returned.
            If it ends inside a character, the output does not complete that character.
        texts: the known texts of single tokens, by token id; `None` if a token's text depends on the tokens
            around it. The detokenizer adds the texts that it finds, and several detokenizers may share the
            dict. With it, a token that consists of whole characters needs no window.
    """

    def __init__(
        self,
        decode: Decode,
        prompt_token_ids: Sequence[int] = (),
        texts: dict[int, str] | None = None,
    ) -> None:
        self._decode = decode
        self._texts = texts
        self._context = _context_from_prompt(decode, prompt_token_ids)
        self._context_text = decode(self._context) if self._context else ""
        self._pending: list[int] = []
        self._pending_text = ""
        self._given = 0  # characters of the pending text that were already returned

    def append(self, token_id: int) -> str:
        """Add a token, and return the text that has become final. It may be empty, and never ends inside a
        character."""
        if self._texts is not None and not self._pending:
            text = self._texts.get(token_id)
            if text is None:
                text = self._texts[token_id] = self._decode([token_id])
            if _REPLACEMENT not in text:
                return text
        window_text = self._decode([*self._context, *self._pending, token_id])
        unchanged = window_text == self._context_text + self._pending_text
        if unchanged and _is_special(self._decode, token_id):
            return ""  # the token is not added: a long run of special tokens must not fill the window
        self._pending.append(token_id)
        follows_unseen = not self._context_text and window_text.endswith(_REPLACEMENT)
        if self._context and (follows_unseen or not window_text.startswith(self._context_text)):
            # The context ends in a byte token, or in a space that the decoder hides, which may be a byte
            # token too. A decoder judges a run of byte tokens as a whole, so the context would change this
            # token's text. Text that begins with a byte needs no context, so the context is dropped.
            self._context, self._context_text = [], ""
            window_text = self._decode(self._pending)
        self._pending_text = window_text[len(self._context_text) :]

        held = _provisional(self._pending_text)
        certain = len(self._pending_text) - held
        new_text = self._pending_text[self._given : certain]
        self._given = max(self._given, certain)
        if not held:
            self._pending_becomes_context()
        elif len(self._pending) >= _MAX_PENDING:
            self._cut_pending()
        return new_text

    def flush(self) -> str:
        """Return the text that was held back. An unfinished character at the end stays U+FFFD."""
        rest = self._pending_text[self._given :]
        self._given = len(self._pending_text)
        return rest

    def _pending_becomes_context(self) -> None:
        self._context += self._pending
        self._context_text += self._pending_text
        self._pending, self._pending_text, self._given = [], "", 0
        if len(self._context) <= _MAX_CONTEXT:
            return
        # The tokens of the last character are enough, or those of the last two characters if the last is a
        # space that the decoder hides. These are five tokens at most.
        for length in range(1, _MAX_CONTEXT + 1):
            text = self._decode(self._context[-length:])
            if _can_be_context(text):
                self._context, self._context_text = self._context[-length:], text
                return

    def _cut_pending(self) -> None:
        """Drop pending tokens from the middle. The held back text, and all text after it, stay the same.

        The tokens after the cut (the tail) have at least twelve bytes. The last nine hold the three U+FFFD
        that are held back. The cut does not change how these nine are decoded. A character that begins before
        the cut can extend over at most three bytes of the tail, and UTF-8 is in step again at the next first
        byte of a character.
        """
        held = len(self._pending_text) - self._given
        self._pending = self._pending[:_HEAD] + self._pending[-_TAIL:]
        self._pending_text = self._decode(self._context + self._pending)[len(self._context_text) :]
        self._given = max(0, len(self._pending_text) - held)


def _provisional(text: str) -> int:
    """How many characters at the end of `text` may change when more bytes arrive."""
    end = text[-_UNFINISHED:]
    return len(end) - len(end.rstrip(_REPLACEMENT))


def _can_be_context(text: str) -> bool:
    """Whether tokens with this text can replace all tokens before them as context.

    The text must not be empty: otherwise, a decoder that drops a leading space would drop the leading space
    of the next token. And the text must not end inside a character.
    """
    return bool(text) and not text.endswith(_REPLACEMENT)


def _context_from_prompt(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """The first context: the prompt's last few tokens, or else its last single token that can be context."""
    end: list[int] = []
    for token_id in reversed(prompt):
        if _is_special(decode, token_id):
            continue
        if len(end) < _MAX_CONTEXT:
            end.insert(0, token_id)
            if _can_be_context(decode(end)):
                return end
        elif _can_be_context(decode([token_id])):
            return [token_id]
    # The only text of the prompt is a leading space, or an unfinished character.
    return [] if decode(end).endswith(_REPLACEMENT) else end


def _is_special(decode: Decode, token_id: int) -> bool:
    """Whether the token never has text. It is decoded twice in a row: one SentencePiece space has no text."""
    return not decode([token_id, token_id])
