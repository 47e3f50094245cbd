"""What the demo serves: eight prompts of different lengths, five of which begin alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minipaged.errors import ConfigError

if TYPE_CHECKING:
    from minipaged.model.tokenizer import Tokenizer

_SHARED = (
    "Nora lived in a small house by the sea with her grandma, a grey cat and a little red boat. Every night "
    "she climbed up the stairs, put a lamp in the window, and looked for ships. She wrote the names of all "
    "the ships into a big blue book. "
)


@dataclass(frozen=True)
class _Plan:
    """One prompt before it is tokenised.

    Attributes:
        text: the prompt's own text.
        shares: whether the common paragraph comes before it.
        max_tokens: length of its output.
    """

    text: str
    shares: bool
    max_tokens: int


_PLANS = (
    _Plan("One morning, the lamp was", True, 48),
    _Plan("Once upon a time there lived a", False, 60),
    _Plan("On Saturday, her brother came to visit. He brought", True, 36),
    _Plan("The three things that a good friend needs are", False, 44),
    _Plan("In the morning, when the sun came up and the snow was gone, she found", True, 56),
    _Plan(
        "The village was full of people that morning. The farmer sold apples, the baker sold bread, children "
        "ran around, and an old man with a big hat sat under a tree and told everybody about",
        False,
        40,
    ),
    _Plan("One day, the cat", True, 28),
    _Plan("Grandma said that", True, 52),
)


@dataclass(frozen=True)
class DemoRequest:
    """One request of the demo.

    Attributes:
        text: the prompt as text; `None` for a model without a tokenizer.
        token_ids: the prompt.
        max_tokens: exactly so many tokens are generated, so that every run is the same.
    """

    text: str | None
    token_ids: list[int]
    max_tokens: int

    @property
    def most_tokens(self) -> int:
        """Prompt and output."""
        return len(self.token_ids) + self.max_tokens


@dataclass(frozen=True)
class DemoWorkload:
    """The requests, in the order of their arrival.

    Attributes:
        num_shared_tokens: leading tokens that the requests with the common paragraph agree on.
    """

    requests: tuple[DemoRequest, ...]
    num_shared_tokens: int

    @property
    def longest(self) -> int:
        """Prompt and output of the longest request, in tokens."""
        return max(request.most_tokens for request in self.requests)


def make_workload(tokenizer: Tokenizer | None, vocab_size: int, longest: int) -> DemoWorkload:
    """Tokenise the prompts, or draw token ids for a model without a tokenizer.

    Args:
        longest: no request may have more tokens than this, prompt and output together. Prompts
            that are too long lose their middle.

    Raises:
        ConfigError: `longest` leaves no room for a prompt and an output.
    """
    if longest < 2:
        raise ConfigError(f"the demo needs room for a prompt and an output: at least 2 tokens, not {longest}")
    requests: list[DemoRequest] = []
    for number, plan in enumerate(_PLANS):
        text = _SHARED + plan.text if plan.shares else plan.text
        token_ids = _draw(plan, number, vocab_size) if tokenizer is None else tokenizer.encode(text)
        max_tokens = min(plan.max_tokens, max(1, longest // 3))
        token_ids = _without_middle(token_ids, longest - max_tokens)
        requests.append(DemoRequest(None if tokenizer is None else text, token_ids, max_tokens))
    alike = [request.token_ids for request, plan in zip(requests, _PLANS, strict=True) if plan.shares]
    return DemoWorkload(tuple(requests), _common_prefix(alike))


def _draw(plan: _Plan, number: int, vocab_size: int) -> list[int]:
    """As many token ids as a tokenizer with four characters to a token would give."""

    def ids(seed: int, text: str) -> list[int]:
        draw = random.Random(seed)
        return [draw.randrange(vocab_size) for _ in range(0, len(text), 4)]

    return (ids(-1, _SHARED) if plan.shares else []) + ids(number, plan.text)


def _without_middle(token_ids: list[int], length: int) -> list[int]:
    if len(token_ids) <= length:
        return token_ids
    tail = length // 3
    return token_ids[: length - tail] + token_ids[len(token_ids) - tail :]


def _common_prefix(rows: list[list[int]]) -> int:
    length = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length
