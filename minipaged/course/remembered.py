"""Saves a chapter's results until the reader's file or the chapter's tests change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.course.results import TestResult, read_results, write_results


def remember(chapter: Chapter, results: Sequence[TestResult], digest: str) -> None:
    """Save the results of all tests of a chapter.

    Args:
        chapter: the chapter.
        results: the results of the reader's own code.
        digest: hash of the files before the tests ran. So a file that changes meanwhile is checked again.

    Raises:
        OSError: the results cannot be written, for example because the repository is read-only.
    """
    folder = folders.state_folder()
    folder.mkdir(exist_ok=True)
    write_results(folder / f"{chapter.folder}.results.jsonl", results)
    (folder / f"{chapter.folder}.files.json").write_text(json.dumps(digest), encoding="utf-8")


def not_remembered(error: OSError) -> str:
    """The line to show if the results cannot be saved."""
    return f"This result is not remembered ({error}): `next` and `progress` will check again."


def remembered(chapter: Chapter) -> list[TestResult] | None:
    """The saved results, if they are for the files as they are now; otherwise `None`."""
    folder = folders.state_folder()
    try:
        digest = json.loads((folder / f"{chapter.folder}.files.json").read_text(encoding="utf-8"))
        if digest != digest_of(chapter):
            return None
        return read_results(folder / f"{chapter.folder}.results.jsonl")
    except (OSError, ValueError, TypeError, KeyError):
        return None  # never checked, or written by another version


def digest_of(chapter: Chapter) -> str:
    """A hash of the reader's file and the chapter's tests."""
    files = [folders.exercise_file(chapter), *sorted(folders.chapter_folder(chapter).glob("test_*.py"))]
    content = hashlib.sha256()
    for path in files:
        content.update(path.read_bytes() if path.is_file() else b"")
        content.update(b"\0")
    return content.hexdigest()
