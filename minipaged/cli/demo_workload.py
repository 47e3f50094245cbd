"""The demo's workload: eight prompts of different lengths. Five of them share a prefix."""

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
        max_tokens: length of the output in tokens.
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
        max_tokens: number of tokens to generate. No output is shorter, so every run takes the same steps.
    """

    text: str | None
    token_ids: list[int]
    max_tokens: int

    @property
    def most_tokens(self) -> int:
        """Number of tokens of prompt and output together."""
        return len(self.token_ids) + self.max_tokens


@dataclass(frozen=True)
class DemoWorkload:
    """The requests, in the order of their arrival.

    Attributes:
        requests: the requests.
        num_shared_tokens: number of leading tokens that the requests with the common paragraph share.
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
        tokenizer: the model's tokenizer, or `None`.
        vocab_size: upper bound of the drawn token ids.
        longest: largest number of tokens of a request, prompt and output together. The middle of a prompt
            that is too long is cut out.

    Raises:
        ConfigError: `longest` leaves no space for a prompt and an output.
    """
    if longest < 2:
        raise ConfigError(f"the demo needs a prompt and an output: at least 2 tokens, not {longest}")
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
    """Random token ids, one for every four characters of the prompt."""

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
