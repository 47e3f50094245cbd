"""Chapter 3: fixed-size blocks, found through a block table for each sequence."""

from __future__ import annotations

from minipaged.course.chapter import Chapter, Exercise

CHAPTER = Chapter(
    number=3,
    slug="block_table",
    title="Block table",
    minutes=60,
    exercises=(
        Exercise("3.1", ("translate", "slot_of"), "from a position to a slot", "Where is token 35?"),
        Exercise("3.2", ("slot_mapping",), "the slots of a range of tokens", "The slots of a whole prompt"),
        Exercise(
            "3.3",
            ("FreeList.__init__", "FreeList.pop", "FreeList.push", "FreeList.__len__", "grow"),
            "a free list, and tables that grow on demand",
            "A free list, and growth on demand",
        ),
        Exercise(
            "3.4",
            ("write_kv", "gather"),
            "keys and values into blocks, and out of them",
            "Write and gather",
        ),
        Exercise(
            "3.5",
            ("pad_block_tables", "paged_attention"),
            "one step of attention through the tables",
            "Attention through the table",
        ),
    ),
)
