"""Chapter 1: how large the KV cache is, and why it limits the batch."""

from __future__ import annotations

from minipaged.course.chapter import Chapter, Exercise

CHAPTER = Chapter(
    number=1,
    slug="kv_size",
    title="KV-size math",
    minutes=45,
    exercises=(
        Exercise("1.1", ("bytes_per_token",), "bytes that one token takes", "What one token costs"),
        Exercise(
            "1.2",
            ("num_blocks_that_fit", "max_model_len_that_fits"),
            "blocks and tokens that fit into a device",
            "How many blocks fit",
        ),
        Exercise(
            "1.3",
            ("max_concurrency", "average_concurrency"),
            "requests at the greatest and at average length",
            "How many requests fit",
        ),
        Exercise("1.4", ("account",), "where the slots of a contiguous cache go", "Three kinds of waste"),
        Exercise(
            "1.5",
            ("contiguous_snapshot", "paged_snapshot"),
            "a snapshot of both layouts under load",
            "Contiguous against paged, simulated",
        ),
    ),
)
