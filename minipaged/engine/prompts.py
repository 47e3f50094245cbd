"""Prompts: the forms in which a user may give one, and what the engine makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypedDict

from minipaged.errors import PromptError
from minipaged.kv.prefix_hash import cache_salt_keys
from minipaged.model.tokenizer import Tokenizer


class TextPrompt(TypedDict, total=False):
    """A prompt as text. `prompt` is required."""

    prompt: str
    cache_salt: str
    priority: int


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids. `prompt_token_ids` is required."""

    prompt_token_ids: list[int]
    cache_salt: str
    priority: int


Prompt = str | list[int] | TextPrompt | TokensPrompt

_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt", "priority"})


@dataclass(frozen=True)
class ParsedPrompt:
    """A prompt that can be served: at least one token, all in the vocabulary."""

    token_ids: list[int]
    text: str | None = None
    cache_salt: str | None = None
    priority: int | None = None


def as_prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list of prompts. A list of integers is one prompt.

    Raises:
        PromptError: neither a prompt nor a list of prompts.
    """
    if isinstance(prompts, str | dict):
        return [prompts]  # pyright: ignore[reportReturnType]
    if not isinstance(prompts, list | tuple):
        raise PromptError(
            f"prompts must be a string, a list of token ids, a dict, or a list of these; not {prompts!r}"
        )
    if prompts and all(isinstance(item, Integral) for item in prompts):
        return [list(prompts)]  # pyright: ignore[reportReturnType]
    return list(prompts)  # pyright: ignore[reportReturnType]


def parse_prompt(
    prompt: Prompt, tokenizer: Tokenizer | None, vocab_size: int, max_model_len: int
) -> ParsedPrompt:
    """Tokenise and check one prompt.

    Raises:
        PromptError: of no known form, empty, not encodable, or with a token id out of the
            vocabulary; or a text for a model without a tokenizer.
    """
    salt: str | None = None
    priority: int | None = None
    body: object = prompt
    if isinstance(prompt, dict):
        unknown = set(prompt) - _KEYS
        if unknown:
            raise PromptError(f"a prompt has no {sorted(unknown)}; its keys are {sorted(_KEYS)}")
        if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
            raise PromptError("a prompt dict needs either 'prompt' or 'prompt_token_ids', and not both")
        body = prompt.get("prompt", prompt.get("prompt_token_ids"))
        salt = _salt(prompt.get("cache_salt"))
        if prompt.get("priority") is not None:
            priority = check_priority(prompt.get("priority"))
        if ("prompt" in prompt) != isinstance(body, str):
            raise PromptError("'prompt' must be a string and 'prompt_token_ids' a list of integers")
    if isinstance(body, str):
        token_ids = _encode(body, tokenizer, max_model_len)
        return ParsedPrompt(_checked(token_ids, vocab_size), body, salt, priority)
    if isinstance(body, list | tuple):
        return ParsedPrompt(_checked(body, vocab_size), None, salt, priority)
    raise PromptError(f"a prompt must be a string, a list of token ids or a dict, not {body!r:.80}")


def _encode(text: str, tokenizer: Tokenizer | None, max_model_len: int) -> list[int]:
    if tokenizer is None:
        raise PromptError(
            "this model came without a tokenizer, so it takes token ids only: "
            "{'prompt_token_ids': [...]} or a list of integers"
        )
    # Refuse a huge text by its length alone: tokenising it would take long, for nothing.
    least = -(-len(text) // tokenizer.max_token_chars)
    if least > max_model_len:
        raise PromptError(
            f"the prompt has {len(text):,} characters, so at least {least:,} tokens; "
            f"max_model_len is {max_model_len:,}"
        )
    return tokenizer.encode(text)


def _checked(token_ids: Sequence[object], vocab_size: int) -> list[int]:
    if not token_ids:
        raise PromptError("the prompt is empty: a model needs at least one token to go on from")
    checked: list[int] = []
    for position, token_id in enumerate(token_ids):
        if isinstance(token_id, bool) or not isinstance(token_id, Integral):
            raise PromptError(f"token ids must be integers; position {position} is {token_id!r:.80}")
        if not 0 <= int(token_id) < vocab_size:
            raise PromptError(
                f"token id {token_id} at position {position} is not in the vocabulary (0 to {vocab_size - 1})"
            )
        checked.append(int(token_id))
    return checked


def _salt(salt: object) -> str | None:
    if salt is None:
        return None
    if not isinstance(salt, str):
        raise PromptError(f"cache_salt must be a non-empty string, not {salt!r:.80}")
    cache_salt_keys(salt)  # refuses what cannot be hashed, here and not in the middle of a step
    return salt


def check_priority(priority: object) -> int:
    """A request's priority.

    Raises:
        PromptError: not an integer.
    """
    if isinstance(priority, bool) or not isinstance(priority, Integral):
        raise PromptError(f"priority must be an integer (smaller is more urgent), not {priority!r:.80}")
    return int(priority)
