"""NotYet: the error of an exercise that is not written yet."""

from __future__ import annotations


class NotYet(NotImplementedError):  # noqa: N818 (readers see it in every stub)
    """The exercise is not written yet.

    Args:
        exercise: its number, such as `"4.2"`.
        name: the function or method that is missing.
    """

    def __init__(self, exercise: str, name: str) -> None:
        super().__init__(exercise, name)
        self.exercise = exercise
        self.name = name

    def __str__(self) -> str:
        return f"exercise {self.exercise}, {self.name}, is not written yet: `minipaged hint {self.exercise}`"
