"""Progress: the state of every exercise. Tests determine a state, which is cached until a file changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minipaged.course import registry
from minipaged.course.chapter import Chapter, Exercise
from minipaged.course.checks import run_tests
from minipaged.course.remembered import digest_of, not_remembered, remember, remembered
from minipaged.course.results import ExerciseResult, by_exercise
from minipaged.course.waiting import Look


def progress(
    chapters: Sequence[Chapter] | None = None,
    before: Callable[[Sequence[Chapter]], None] | None = None,
    look: Look | None = None,
    unsaved: Callable[[str], None] | None = None,
) -> list[tuple[Chapter, list[ExerciseResult]]]:
    """The reader's results in some chapters, or in all.

    Args:
        chapters: the chapters; all if not given.
        before: called with the chapters whose tests have to be run, before the tests start.
        look: called during the run with the test that is running.
        unsaved: called with a line of text if the results cannot be saved.

    Raises:
        CourseError: the tests could not be run.
    """
    chosen = registry.chapters() if chapters is None else tuple(chapters)
    known = {chapter.number: remembered(chapter) for chapter in chosen}
    changed = [chapter for chapter in chosen if known[chapter.number] is None]
    if changed:
        if before is not None:
            before(changed)
        problem = ""
        digests = {chapter.number: digest_of(chapter) for chapter in changed}
        found = run_tests(changed, look=look)
        for chapter in changed:
            results = [result for result in found if result.chapter == chapter.number]
            try:
                remember(chapter, results, digests[chapter.number])
            except OSError as error:
                problem = not_remembered(error)
            known[chapter.number] = results
        if problem and unsaved is not None:
            unsaved(problem)
    return [(chapter, by_exercise(chapter, known[chapter.number] or [])) for chapter in chosen]


def next_exercise(found: Sequence[tuple[Chapter, list[ExerciseResult]]]) -> Exercise | None:
    """The exercise to do next.

    A reader may start with any chapter. So the search begins at the last chapter in which an exercise passes,
    and goes on with the chapters before it. It returns the first exercise that does not pass, or a stretch
    exercise if all others pass.
    """
    begun = [place for place, (_, results) in enumerate(found) if any(map(_passes, results))]
    here = begun[-1] if begun else 0
    open_ones = [
        each.exercise
        for _, results in (*found[here:], *found[:here])
        for each in results
        if each.exercise is not None and not _passes(each)
    ]
    required = [exercise for exercise in open_ones if not exercise.stretch]
    return (required or open_ones or [None])[0]


def _passes(result: ExerciseResult) -> bool:
    return result.exercise is not None and result.state == "pass"
