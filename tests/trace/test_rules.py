"""A trace in which one event is missing, or has another number, breaks a rule.

Some changes break none, because the rest of the trace does not tell: what a request asked for, which token
was sampled, what a failed step did. In a file these are caught too, as `test_reader.py` shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from minipaged.errors import TraceError
from minipaged.events import (
    AllBlocksCleared,
    EngineReset,
    Event,
    RequestAborted,
    StepFailed,
    StepFinished,
)
from minipaged.loading.loader import LoadedModel
from minipaged.trace.trace import Trace
from tests.engine.test_histories import live_one_history

NUM_HISTORIES = 60
EVENTS_OF_A_HISTORY = 25

FREE = {
    "prompt_token_ids",
    "token_ids",
    "token_id",
    "priority",
    "rank",
    "max_tokens",
    "num_seqs",
    "num_tokens",  # of a prompt that was not computed to its end
}
"""Fields of which a trace says nothing a second time, or not always."""


def is_valid(events: list[Event]) -> bool:
    try:
        Trace.of(events).check()
    except TraceError:
        return False
    return True


def histories(model: LoadedModel, rng: random.Random) -> Iterator[tuple[list[Event], list[int]]]:
    """Valid traces, each with some places of events whose change must be caught."""
    for seed in range(NUM_HISTORIES):
        events: list[Event] = []
        live_one_history(model, seed, events.append, lambda engine: None)
        assert is_valid(events)
        places = [i for i in range(1, len(events)) if not is_untold(events, i)]
        yield events, rng.sample(places, min(len(places), EVENTS_OF_A_HISTORY))


def is_untold(events: list[Event], place: int) -> bool:
    """Whether the rest of the trace says nothing of an event."""
    event, rest = events[place], events[place:]
    if isinstance(event, StepFailed | EngineReset):
        return True  # it states what holds afterwards
    ending = next((each for each in rest if isinstance(each, StepFinished | StepFailed)), None)
    if isinstance(ending, StepFailed):
        return True  # the step was undone
    if isinstance(event, AllBlocksCleared | RequestAborted):
        # Nothing was cached; or no step came after it.
        return isinstance(event, AllBlocksCleared) or ending is None
    return ending is None


def test_a_missing_event_is_caught(nano_model: LoadedModel) -> None:
    rng = random.Random(0)
    for events, places in histories(nano_model, rng):
        for i in places:
            assert not is_valid(events[:i] + events[i + 1 :]), events[i]


def test_a_changed_number_is_caught(nano_model: LoadedModel) -> None:
    rng = random.Random(1)
    for events, places in histories(nano_model, rng):
        for i in places:
            changed = with_another_number(events[i], rng)
            if changed is not None:
                assert not is_valid([*events[:i], changed, *events[i + 1 :]]), (events[i], changed)


def with_another_number(event: Event, rng: random.Random) -> Event | None:
    """The event with one whole number higher or lower by one; `None` if it has none."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    numbers = {
        name: value
        for name, value in values.items()
        if name not in FREE
        and ((isinstance(value, tuple) and value and isinstance(value[0], int)) or type(value) is int)
    }
    if not numbers:
        return None
    name, value = rng.choice(list(numbers.items()))
    if isinstance(value, tuple):
        at = rng.randrange(len(value))
        return replace(event, **{name: (*value[:at], value[at] + rng.choice([-1, 1]), *value[at + 1 :])})
    return replace(event, **{name: value + rng.choice([-1, 1])})


def test_the_message_names_the_step_the_rule_and_the_event(nano_model: LoadedModel) -> None:
    events: list[Event] = []
    live_one_history(nano_model, 3, events.append, lambda engine: None)
    place, finished = next((i, each) for i, each in enumerate(events) if isinstance(each, StepFinished))
    events[place] = replace(finished, num_running=7)
    with pytest.raises(TraceError, match=r"^step 1: the engine has num_running=7, .*StepFinished\(step=1,"):
        Trace.of(events).check()
