"""Chapter 4: sharing blocks by reference counts, and copying them on write."""

from __future__ import annotations

from minipaged.course.chapter import Chapter, Exercise

CHAPTER = Chapter(
    number=4,
    slug="sharing",
    title="Reference counts and copy-on-write",
    minutes=75,
    exercises=(
        Exercise("4.1", ("fork",), "a second table of the same blocks", "Two tables, one block"),
        Exercise("4.2", ("free",), "giving up a table's blocks", "Free when no table names it"),
        Exercise("4.3", ("append",), "room for tokens, with copies on write", "The first to write copies"),
        Exercise("4.4", ("copy_blocks",), "a step's copies, in all layers", "The copies, in all layers"),
        Exercise(
            "4.5",
            ("start_samples", "decode_step", "sharing_saving"),
            "parallel sampling, and what it saves",
            "Parallel sampling",
        ),
        Exercise("4.6", ("best_extensions", "follow"), "one step of beam search", "One step of beam search"),
    ),
)
