"""Incident: a run of the real engine with one thing wrong, and a question to answer from its trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from minipaged.errors import CourseError
from minipaged.events import Event, Observer
from minipaged.trace.trace import Trace


@dataclass(frozen=True)
class Finding:
    """The answer to an incident's question, computed from its trace.

    Attributes:
        answer: a number, the id of a request, or the letter of a choice.
        explanation: why the answer is right, with the steps to look at.
        tolerance: how far a number may be from `answer`.
    """

    answer: float | str
    explanation: str
    tolerance: float = 0

    def accepts(self, given: str) -> bool:
        """Whether an answer is right.

        Raises:
            CourseError: the answer is a number, and `given` is not.
        """
        text = given.strip().rstrip("%").strip().lower()
        if isinstance(self.answer, str):
            return text.rstrip(")") == self.answer.lower()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise CourseError(f"the answer is a number, not {given!r:.80}")
        return abs(number - self.answer) <= self.tolerance


@dataclass(frozen=True)
class Incident:
    """One incident.

    Attributes:
        symptom: what the engine's users complain of, in two sentences.
        question: what to find out.
        run: runs the engine. Its argument is the observer to attach to the engine.
        find: finds the answer in the trace of the run.
        choices: the possible answers, if there is a choice. They are called a, b, c and so on.
    """

    symptom: str
    question: str
    run: Callable[[Observer], None]
    find: Callable[[Trace], Finding]
    choices: tuple[str, ...] = field(default=())

    def lettered_choices(self) -> list[tuple[str, str]]:
        """Each choice with its letter."""
        return [(chr(ord("a") + place), choice) for place, choice in enumerate(self.choices)]

    def record(self) -> Trace:
        """Run the engine, and return the trace."""
        events: list[Event] = []
        self.run(events.append)
        return Trace.of(events)
