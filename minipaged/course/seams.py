"""Seams: how an exercise becomes one of the engine's `Parts`.

If the reader has written an exercise, the engine runs with it. If not, it runs with its own code.
`ResolvedParts` also counts the calls, which shows that the reader's code really ran.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import ModuleType
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from minipaged.config import unused_parts
from minipaged.course import registry
from minipaged.course.chapter import Chapter
from minipaged.course.implementation import Implementation
from minipaged.course.not_yet import NotYet
from minipaged.course.results import PartRow

if TYPE_CHECKING:
    from minipaged.config import EngineConfig
    from minipaged.parts import Parts

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Seam:
    """One exercise as a part of the engine.

    Attributes:
        exercise: the exercise's number.
        part: the field of `Parts` that it fills.
        adapt: makes the part from the chapter's module. It is often `lambda code: code.slot_mapping`. If the
            exercise is simpler than the engine's interface, the part is an adapter.
        remark: how the part is made, if a reader would not expect that this exercise fills it.
    """

    exercise: str
    part: str
    adapt: Callable[[ModuleType], Callable[..., object]]
    remark: str = ""


class CountedCalls(Generic[P, R]):
    """Wraps a function or a class, and counts its calls."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self.num_calls = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self.num_calls += 1
        return self._function(*args, **kwargs)


@dataclass(frozen=True)
class ResolvedParts:
    """The parts of an engine that runs with a reader's code.

    Attributes:
        parts: the parts, for `EngineConfig(parts=…)`.
        whose: (part, exercise, whose code fills the part), for each part that an exercise can fill.
        counters: counts the calls of each part that comes from an exercise.
        remarks: how some parts are made from their exercise.
    """

    parts: Parts
    whose: tuple[tuple[str, str, str], ...]
    counters: dict[str, CountedCalls[..., object]] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> tuple[str, ...]:
        """The exercises that run in this engine."""
        return tuple(exercise for part, exercise, _ in self.whose if part in self.counters)

    def used_by(self, config: EngineConfig) -> ResolvedParts:
        """A copy without the parts that an engine with these settings never calls.

        The engine would refuse them.
        """
        unused = unused_parts(config, self.parts)
        own = {each.name: each.default for each in fields(self.parts) if each.name in unused}
        return ResolvedParts(
            replace(self.parts, **own),
            tuple(row for row in self.whose if row[0] not in unused),
            {part: counter for part, counter in self.counters.items() if part not in unused},
            self.remarks,
        )

    def table(self) -> list[PartRow]:
        """Which code ran, and how often."""
        return [
            PartRow(part, exercise, whose, self.counters[part].num_calls, self.remarks.get(part, ""))
            if part in self.counters
            else PartRow(part, exercise, whose, None)
            for part, exercise, whose in self.whose
        ]


def seams(chapter: Chapter) -> tuple[Seam, ...]:
    """The seams of a chapter: `SEAMS` of `minipaged/course/chNN/seams.py`."""
    return importlib.import_module(f"minipaged.course.ch{chapter.number:02}.seams").SEAMS


def resolve(implementations: Iterable[Implementation]) -> ResolvedParts:
    """The parts made from the written exercises. If two chapters fill the same part, the later is used.

    Raises:
        NotYet: no exercise is written.
        Exception: anything that the reader's file raises when it is imported.
    """
    counters: dict[str, CountedCalls[..., object]] = {}
    whose: dict[str, tuple[str, str, str]] = {}
    remarks: dict[str, str] = {}
    for each in implementations:
        wanted = seams(each.chapter)
        written = each.written()
        code = each.load() if any(seam.exercise in written for seam in wanted) else None
        for seam in wanted:
            if code is not None and seam.exercise in written:
                counters[seam.part] = CountedCalls(seam.adapt(code))
                whose[seam.part] = (seam.part, seam.exercise, each.name)
                remarks[seam.part] = seam.remark
            else:
                begun = each.has_begun(registry.exercise(seam.exercise))
                own = "incomplete" if begun else "engine"
                whose.setdefault(seam.part, (seam.part, seam.exercise, own))
    if not counters:
        raise NotYet("", "in the engine")
    from minipaged.parts import Parts  # imports torch, which takes seconds

    return ResolvedParts(Parts(**counters), tuple(whose.values()), counters, remarks)  # pyright: ignore[reportArgumentType]
