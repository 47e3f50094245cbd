"""Chapters 1 and 2: an engine without a KV cache, and one with a contiguous region for each sequence.

The modules of the contiguous cache are `region_allocator` (the interface of an allocator), `first_fit` and
`buddy` (the two allocators), `reserve` (how many slots a request reserves), `contiguous_manager` (giving
sequences their regions), `region_slots` (writing and reading a region), and `contiguous_layout` (attention
over regions).

The modules of the engine without a cache are `uncached_manager` and `uncached_layout`. Both engines compute
attention for one sequence at a time, with `attend_one`.
"""
