"""Chapter 5: attention through the block table, in a kernel."""

from __future__ import annotations

from minipaged.course.chapter import Chapter, Exercise

CHAPTER = Chapter(
    number=5,
    slug="paged_kernel",
    title="The paged kernel",
    minutes=120,
    exercises=(
        Exercise("5.1", ("tiled_attention",), "softmax over tiles, in one pass", "Softmax in one pass"),
        Exercise(
            "5.2", ("paged_decode", "decode_kernel"), "the smallest paged kernel", "The smallest kernel"
        ),
        Exercise(
            "5.3",
            ("grouped_decode", "grouped_kernel", "attend_blocks"),
            "all query heads of a KV head in one tile",
            "Grouped heads",
        ),
        Exercise(
            "5.4",
            ("split_decode", "part_kernel", "merge"),
            "several programs for one sequence",
            "Splitting a sequence",
        ),
        Exercise("5.5", ("write_kv", "write_kernel"), "writing to the cache", "Writing to the cache"),
    ),
)
