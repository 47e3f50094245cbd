"""RequestIntake: decides whether a request can be served, when the request is added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypedDict

from minipaged.config import EngineConfig
from minipaged.errors import PromptError, RequestTooLargeError, SamplingParamsError
from minipaged.kv.manager import KVManager
from minipaged.kv.prefix_hash import cache_salt_keys
from minipaged.loading.loader import LoadedModel
from minipaged.model.tokenizer import Tokenizer
from minipaged.sampling.beam_params import BeamSearchParams
from minipaged.sampling.params import SamplingParams


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


@dataclass(frozen=True)
class AcceptedRequest:
    """A request that can be served: `max_tokens` is a number that fits."""

    prompt: ParsedPrompt
    max_tokens: int
    priority: int


class RequestIntake:
    """Checks requests against one engine's limits. A request that passes can always finish."""

    def __init__(
        self, config: EngineConfig, model: LoadedModel, manager: KVManager, max_model_len: int
    ) -> None:
        self._config = config
        self._model = model
        self._manager = manager
        self._max_model_len = max_model_len

    def check(
        self, prompt: Prompt, params: SamplingParams | BeamSearchParams, priority: int
    ) -> AcceptedRequest:
        """Accept a request, or refuse it with the exact reason.

        Raises:
            PromptError, RequestTooLargeError, SamplingParamsError: see `LLMEngine.add_request`.
        """
        if isinstance(params, SamplingParams):
            num_seqs, kind = params.n, "samples"
            self._check_params(params)
        elif isinstance(params, BeamSearchParams):
            num_seqs, kind = params.beam_width, "beams"
        else:
            raise SamplingParamsError(
                f"params must be SamplingParams or BeamSearchParams, not {params!r:.80}"
            )
        if num_seqs > self._config.max_num_seqs:
            raise SamplingParamsError(
                f"{num_seqs} {kind} run together, but max_num_seqs is {self._config.max_num_seqs}"
            )
        parsed = parse_prompt(
            prompt, self._model.tokenizer, self._model.config.vocab_size, self._max_model_len
        )
        priority = check_priority(priority) if parsed.priority is None else parsed.priority
        if priority and self._config.scheduling_policy != "priority":
            raise PromptError(
                f"priority={priority} has no meaning under scheduling_policy="
                f"{self._config.scheduling_policy!r}; use 'priority'"
            )
        max_tokens = self._max_tokens(len(parsed.token_ids), params.max_tokens, num_seqs, kind)
        return AcceptedRequest(parsed, max_tokens, priority)

    def _check_params(self, params: SamplingParams) -> None:
        vocab_size = self._model.config.vocab_size
        for token_id in params.stop_ids:
            if token_id >= vocab_size:
                raise SamplingParamsError(
                    f"stop_token_ids has {token_id}, which is not in the vocabulary (0 to {vocab_size - 1})"
                )
        if params.stop_strings and self._model.tokenizer is None:
            raise SamplingParamsError(
                "stop strings need text, and this model came without a tokenizer; use stop_token_ids"
            )
        if params.skip_special_tokens and self._model.tokenizer is not None:
            _refuse_hidden_stops(params.stop_strings, self._model.tokenizer)

    def _max_tokens(self, num_prompt_tokens: int, wanted: int | None, num_seqs: int, kind: str) -> int:
        room = self._max_model_len - num_prompt_tokens
        if room < 1:
            raise RequestTooLargeError(
                f"the prompt has {num_prompt_tokens:,} tokens, and max_model_len is "
                f"{self._max_model_len:,}: prompt plus at least one output token do not fit. "
                f"The longest prompt is {self._max_model_len - 1:,} tokens."
            )
        max_tokens = room if wanted is None else min(wanted, room)
        self._manager.check_fits(num_prompt_tokens, max_tokens, num_seqs, kind)
        return max_tokens


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


def parse_prompt(
    prompt: Prompt, tokenizer: Tokenizer | None, vocab_size: int, max_model_len: int
) -> ParsedPrompt:
    """Tokenise and check one prompt.

    Raises:
        PromptError: the prompt has no known form, is empty, cannot be encoded, or has a token id outside
            the vocabulary; or it is a text, and the model has no tokenizer.
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
    # A huge text is refused by its length, since tokenising it would take long.
    least = -(-len(text) // tokenizer.max_token_chars)
    if least > max_model_len:
        raise PromptError(
            f"the prompt has {len(text):,} characters, so at least {least:,} tokens; "
            f"max_model_len is {max_model_len:,}"
        )
    return tokenizer.encode(text)


def _checked(token_ids: Sequence[object], vocab_size: int) -> list[int]:
    if not token_ids:
        raise PromptError("the prompt is empty: a model needs at least one token to continue from")
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
    cache_salt_keys(salt)  # a salt that cannot be hashed raises here, and not later in the middle of a step
    return salt


def check_priority(priority: object) -> int:
    """A request's priority.

    Raises:
        PromptError: `priority` is not an integer.
    """
    if isinstance(priority, bool) or not isinstance(priority, Integral):
        raise PromptError(f"priority must be an integer (smaller is more urgent), not {priority!r:.80}")
    return int(priority)


def _refuse_hidden_stops(stops: Sequence[str], tokenizer: Tokenizer) -> None:
    """Refuse stop strings that contain a special token and other text.

    A stop string that is exactly a special token ends the output at that token. But a longer string would
    never be found, because the text does not contain special tokens.
    """
    for stop in stops:
        hidden = next((name for name in tokenizer.special_token_ids if name in stop), None)
        if hidden is not None and stop not in tokenizer.special_token_ids:
            raise SamplingParamsError(
                f"stop={stop!r} contains the special token {hidden!r}. The text does not contain special "
                f"tokens, so it is never found: use stop={hidden!r}, or set skip_special_tokens=False"
            )
