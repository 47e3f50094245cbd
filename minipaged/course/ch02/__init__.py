"""Chapter 2: a KV cache of contiguous regions, and the memory that it wastes."""

from __future__ import annotations

from minipaged.course.chapter import Chapter, Exercise

CHAPTER = Chapter(
    number=2,
    slug="contiguous",
    title="The contiguous baseline",
    minutes=100,
    exercises=(
        Exercise(
            "2.1",
            ("allocate_first_fit", "free_first_fit"),
            "first fit, with merging",
            "One region for each request",
        ),
        Exercise("2.2", ("write_region", "read_region"), "a token's place in a region", "Write and read"),
        Exercise("2.3", ("attend_region",), "causal attention over a region", "Attention over the region"),
        Exercise(
            "2.4",
            ("static_batch", "serve_static"),
            "a static batch: padding, and its longest member",
            "A static batch",
        ),
        Exercise(
            "2.5",
            ("allocate_buddy", "free_buddy"),
            "the buddy allocator, for Pow2",
            "Powers of two",
            stretch=True,
        ),
    ),
)
