"""The conversation as a prompt, and the turns that are dropped when it gets too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from minipaged.cli.conversation import Conversation
from minipaged.errors import PromptError
from minipaged.loading.folder import read_tokenizer
from minipaged.model.tokenizer import Tokenizer
from tests.byte_tokenizer import byte_tokenizer
from tests.oracle import add_byte_tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def templated(tmp_path: Path) -> Tokenizer:
    tokenizer = read_tokenizer(add_byte_tokenizer(tmp_path, TEMPLATE))
    assert tokenizer is not None
    return tokenizer


def with_turns(tokenizer: Tokenizer, turns: int, system: str | None = None) -> Conversation:
    conversation = Conversation(tokenizer, system)
    for i in range(turns):
        conversation.ask(f"question {i}")
        conversation.answer(f" answer {i}")
    conversation.ask("last")
    return conversation


def test_the_transcript_of_a_model_without_a_template() -> None:
    tokenizer = byte_tokenizer()
    conversation = with_turns(tokenizer, 1, "Be brief.")
    assert not conversation.has_template
    assert conversation.stop == ["\nUser:"]
    assert tokenizer.decode(conversation.fit(1000).token_ids) == (
        "Be brief.\n\nUser: question 0\nAssistant: answer 0\nUser: last\nAssistant:"
    )


def test_a_template_is_used_where_there_is_one(templated: Tokenizer) -> None:
    conversation = with_turns(templated, 1, "Be brief.")
    assert conversation.has_template
    assert conversation.stop == []
    assert templated.decode(conversation.fit(1000).token_ids) == (
        "<system>Be brief.</><user>question 0</><assistant> answer 0</><user>last</><assistant>"
    )


def test_a_prompt_begins_with_the_one_before_it_and_its_answer() -> None:
    tokenizer = byte_tokenizer()
    conversation = with_turns(tokenizer, 2)
    before = conversation.fit(1000).token_ids
    conversation.answer(" yes\n")
    conversation.ask("more")
    said = before + tokenizer.encode(" yes\n")
    assert conversation.fit(1000).token_ids[: len(said)] == said


@pytest.mark.parametrize("longest", range(40, 160, 7))
def test_the_oldest_turns_are_dropped_and_no_more_than_needed(longest: int) -> None:
    tokenizer = byte_tokenizer()
    conversation = with_turns(tokenizer, 4)
    whole = list(conversation.messages)
    fitted = conversation.fit(longest)
    assert len(fitted.token_ids) <= longest
    assert conversation.messages == whole[2 * fitted.num_dropped :]
    assert conversation.messages[-1]["content"] == "last"
    if fitted.num_dropped:
        one_less = with_turns(tokenizer, 4)
        one_less.messages = whole[2 * (fitted.num_dropped - 1) :]
        with_one_more = one_less.fit(10_000).token_ids
        assert len(with_one_more) > longest


def test_the_system_message_is_never_dropped() -> None:
    tokenizer = byte_tokenizer()
    conversation = with_turns(tokenizer, 4, "Be brief.")
    fitted = conversation.fit(60)
    assert fitted.num_dropped == 4
    assert tokenizer.decode(fitted.token_ids).startswith("Be brief.\n\nUser: last")


def test_a_message_that_is_too_long_alone_changes_nothing() -> None:
    conversation = with_turns(byte_tokenizer(), 2)
    before = list(conversation.messages)
    with pytest.raises(PromptError, match="this message is 21 tokens long, and a prompt may have 10"):
        conversation.fit(10)
    assert conversation.messages == before
    conversation.take_back()
    assert conversation.messages == before[:-1]


def test_reset_keeps_the_system_message() -> None:
    tokenizer = byte_tokenizer()
    conversation = with_turns(tokenizer, 2, "Be brief.")
    conversation.reset()
    conversation.ask("x")
    assert tokenizer.decode(conversation.fit(100).token_ids) == "Be brief.\n\nUser: x\nAssistant:"
