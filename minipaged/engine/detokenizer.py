"""Incremental detokenising: the text that each new token adds.

Tokens are not characters. A token may hold part of a UTF-8 character, and some decoders treat the
first token specially (Llama 2's drops a leading space), so decoding tokens one by one gives wrong
text, and decoding all of them at every step takes quadratic time. The way between, as in vLLM
(vllm/v1/engine/detokenizer.py): decode a small window,

    window = context + pending

where the context is a few tokens whose text is out already, and pending are those whose text may
still change. The new text is what the window's text has beyond what was given out.

When may text still change? Bytes that do not (yet) form a character decode to U+FFFD. An unfinished
character has at most three bytes, so at most the last three U+FFFD are provisional, and everything
before them is final. That is what `append` holds back, and no more.

What is guaranteed, with "all" the pieces from `append` and `flush` joined:

- Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2): all == decode(output ids), for any ids.
- SentencePiece with byte fallback (Llama 2, Mistral): all == what decode(prompt + output) has beyond
  decode(prompt), if the prompt ends between characters and each run of byte tokens is valid UTF-8.
  Such a decoder turns a whole run into U+FFFD, one for each byte, when any of it is invalid, which
  would take back text that is out. Here the longest valid beginning of the run stays, and the bytes
  after it become U+FFFD.
- The tokens passed to `decode` for each `append` are bounded by a constant, whatever the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNFINISHED = 3  # bytes that an unfinished UTF-8 character can have
_MAX_CONTEXT = 6  # tokens; a longer context is cut, and cutting costs a decode or more

# Pending tokens grow in number only while invalid bytes come. Then these from either end are kept:
_HEAD = _UNFINISHED + 1  # four bytes without a character in front: they keep a byte-fallback run invalid
_TAIL = 3 * _UNFINISHED + _UNFINISHED  # three U+FFFD of up to three bytes, and what the cut may touch
_MAX_PENDING = _HEAD + _TAIL + 8  # cut at this length, and so only every eighth token

Decode = Callable[[Sequence[int]], str]
"""Token ids to text. Special tokens are skipped or shown, always the one or the other."""


class Detokenizer:
    """The text of one sequence, piece by piece.

    Args:
        decode: token ids to text. Decoding more tokens must only ever add text, apart from U+FFFD
            at the end (so no `clean_up_tokenization_spaces`).
        prompt_token_ids: the prompt. Its end serves as the first context; its text is never
            returned, and a character that it leaves unfinished is not continued.
    """

    def __init__(self, decode: Decode, prompt_token_ids: Sequence[int] = ()) -> None:
        self._decode = decode
        self._context = _context_from_prompt(decode, prompt_token_ids)
        self._context_text = decode(self._context) if self._context else ""
        self._pending: list[int] = []
        self._pending_text = ""
        self._given = 0  # characters of the pending text that are out

    def append(self, token_id: int) -> str:
        """Take one more token and return the text that is now certain; often "", never half a character."""
        window_text = self._decode([*self._context, *self._pending, token_id])
        unchanged = window_text == self._context_text + self._pending_text
        if unchanged and _is_special(self._decode, token_id):
            return ""  # nothing to remember; a long run of these must not fill the window
        self._pending.append(token_id)
        follows_unseen = not self._context_text and window_text.endswith(_REPLACEMENT)
        if self._context and (follows_unseen or not window_text.startswith(self._context_text)):
            # The context ends in a byte token, or in a space that does not show and may be one. Bytes
            # in a row are invalid together, so it must go; what begins with a byte needs no context.
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
        """What was held back: the output has ended, so an unfinished character stays U+FFFD."""
        rest = self._pending_text[self._given :]
        self._given = len(self._pending_text)
        return rest

    def _pending_becomes_context(self) -> None:
        self._context += self._pending
        self._context_text += self._pending_text
        self._pending, self._pending_text, self._given = [], "", 0
        if len(self._context) <= _MAX_CONTEXT:
            return
        # One character does, or, should it be a space that does not show, that and the one before:
        # five tokens at most.
        for length in range(1, _MAX_CONTEXT + 1):
            text = self._decode(self._context[-length:])
            if _can_be_context(text):
                self._context, self._context_text = self._context[-length:], text
                return

    def _cut_pending(self) -> None:
        """Drop pending tokens from the middle; the text held back, and what follows it, stay the same.

        The tail has at least twelve bytes. The last nine hold the three U+FFFD that are held back,
        and are read as before: a character that begins before the cut can take at most three bytes
        behind it, and from the next first byte of a character on UTF-8 is back in step.
        """
        held = len(self._pending_text) - self._given
        self._pending = self._pending[:_HEAD] + self._pending[-_TAIL:]
        self._pending_text = self._decode(self._context + self._pending)[len(self._context_text) :]
        self._given = max(0, len(self._pending_text) - held)


def _provisional(text: str) -> int:
    """How many characters at the end of `text` more bytes might still change."""
    end = text[-_UNFINISHED:]
    return len(end) - len(end.rstrip(_REPLACEMENT))


def _can_be_context(text: str) -> bool:
    """Whether tokens with this text can stand in for all tokens before them.

    They must show (else a decoder that drops a leading space has not dropped it yet) and must end
    between characters.
    """
    return bool(text) and not text.endswith(_REPLACEMENT)


def _context_from_prompt(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """A few tokens of the prompt to begin with: its end, or else the last token that can serve."""
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
    # Nothing shows but a leading space, or nothing but an unfinished character.
    return [] if decode(end).endswith(_REPLACEMENT) else end


def _is_special(decode: Decode, token_id: int) -> bool:
    """Whether the token never shows. Alone, a SentencePiece space does not show; two of them do."""
    return not decode([token_id, token_id])
