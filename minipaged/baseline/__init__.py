"""Chapters 1 and 2: an engine without a KV cache, and one with a contiguous region for each sequence.

The contiguous cache: `region_allocator` (what it needs), `first_fit` and `buddy` (two that give it),
`reserve` (how much a request asks for), `contiguous_manager` (giving sequences their regions),
`region_slots` (writing and reading them), `contiguous_layout` (attention over them). Without a cache:
`uncached_manager` and `uncached_layout`. `attend_one` is attention of one sequence, for both.
"""
