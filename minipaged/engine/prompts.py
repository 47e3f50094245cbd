"""The forms in which a user may give a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TypedDict

from minipaged.errors import PromptError


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


def as_prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several, as a list of prompts. A list of integers is one prompt.

    Raises:
        PromptError: `prompts` is neither a prompt nor a list of prompts.
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
