"""Progress: the state of every exercise, found by the tests, and remembered until a file changes."""

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
    """The reader's results in these chapters, or in all.

    Args:
        chapters: which; all, if not given.
        before: called with the chapters whose tests must be run, before that is done.
        look: called while they run, with the test that does.
        unsaved: called with a line, if the results cannot be remembered.

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
    """The first exercise that does not pass, from the last chapter on in which one passes: a reader may
    have begun there. If there is none, the first of all. Stretch exercises only when there is nothing else.
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
