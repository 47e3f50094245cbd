"""Conversation: the turns so far, and the prompt that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.errors import PromptError
from minipaged.model.tokenizer import ChatMessage, Tokenizer

_TURN = 2
"""A turn consists of two messages: the user's, and the answer."""


@dataclass(frozen=True)
class FittedPrompt:
    """A conversation as a prompt.

    Attributes:
        token_ids: the prompt.
        num_dropped: number of oldest turns that were dropped to make the prompt fit.
    """

    token_ids: list[int]
    num_dropped: int


class Conversation:
    """The messages of a chat, and the system message before them.

    A model with a chat template gets the conversation in that form. Other models get a transcript:

        User: Who are you?
        Assistant: I am a model.
        User: Are you sure?
        Assistant:

    Args:
        tokenizer: the model's tokenizer.
        system: a message that always comes first, or `None`.
    """

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._system = system
        self.messages: list[ChatMessage] = []

    @property
    def has_template(self) -> bool:
        return self._tokenizer.chat_template is not None

    @property
    def stop(self) -> list[str]:
        """Strings that end an answer. Without them, a model would write the user's next message, too."""
        return [] if self.has_template else ["\nUser:"]

    def ask(self, text: str) -> None:
        """Add the user's message."""
        self.messages.append(ChatMessage(role="user", content=text))

    def take_back(self) -> None:
        """Remove the user's last message, which got no answer."""
        self.messages.pop()

    def answer(self, text: str) -> None:
        """Add the model's answer."""
        self.messages.append(ChatMessage(role="assistant", content=text))

    def reset(self) -> None:
        """Forget all turns. The system message stays."""
        self.messages.clear()

    def fit(self, longest: int) -> FittedPrompt:
        """The prompt for the next answer, of at most `longest` tokens.

        While the prompt is longer, the oldest turn is dropped for good. The tokens after the system message
        then differ from those of earlier prompts, so the prefix cache only finds the system message.

        Raises:
            PromptError: the system message and the last message alone are too long. In this case nothing is
                dropped.
        """
        kept, token_ids, num_dropped = self.messages, self._encode(self.messages), 0
        while len(token_ids) > longest and len(kept) > 1:
            kept = kept[_TURN:]
            token_ids = self._encode(kept)
            num_dropped += 1
        if len(token_ids) <= longest:
            self.messages = kept
            return FittedPrompt(token_ids, num_dropped)
        with_system = ", with the system message," if self._system else ""
        raise PromptError(
            f"this message{with_system} is {len(token_ids):,} tokens long, and a prompt may have {longest:,} "
            "here: shorten it, or start with a larger --max-model-len"
        )

    def _encode(self, messages: list[ChatMessage]) -> list[int]:
        if self.has_template:
            system = [ChatMessage(role="system", content=self._system)] if self._system else []
            return self._tokenizer.apply_chat_template([*system, *messages])
        lines = [f"{self._system}\n\n"] if self._system else []
        for message in messages:
            if message["role"] == "user":
                lines.append(f"User: {message['content']}\nAssistant:")
            else:
                # Exactly as the model wrote it, including its first space, so that the tokens are the same.
                lines.append(f"{message['content']}\n")
        return self._tokenizer.encode("".join(lines))
