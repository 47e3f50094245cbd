"""Interview questions: one page for each chapter, collected from its text.

In a chapter, a question is a `<details>` element of the class `interview`:

    <details class="interview">
    <summary>Why does the KV cache bound the batch?</summary>

    A strong answer says …

    </details>
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from minipaged.course import folders
from minipaged.course.chapter import Chapter
from minipaged.errors import CourseError

_QUESTION = re.compile(
    r'<details class="interview">\s*<summary>(?P<question>.+?)</summary>\s*(?P<answer>.+?)\s*</details>',
    re.DOTALL,
)


@dataclass(frozen=True)
class Question:
    """An interview question and, in Markdown, what a strong answer contains."""

    question: str
    answer: str


def questions(text: str) -> list[Question]:
    """The questions in a chapter's text.

    Raises:
        CourseError: a `<details>` element of this class does not have the format above.
    """
    found = [
        Question(" ".join(match["question"].split()), match["answer"].strip())
        for match in _QUESTION.finditer(text)
    ]
    if len(found) != text.count('<details class="interview">'):
        raise CourseError("an interview question lacks its summary, its answer or its end")
    return found


def interview_page(chapter: Chapter) -> str:
    """The page of a chapter, in Markdown: the questions first, then the answers."""
    found = questions(folders.chapter_source(chapter).read_text(encoding="utf-8"))
    lines = [f"# Interview questions: {chapter.title}", ""]
    lines += [f"From chapter {chapter.number}. Answer aloud before you look below.", ""]
    lines += [f"{number}. {each.question}" for number, each in enumerate(found, 1)]
    lines += ["", "## What a strong answer contains", ""]
    for number, each in enumerate(found, 1):
        lines += [f"### {number}. {each.question}", "", each.answer, ""]
    return "\n".join(lines)
