"""Chapters 1 and 2: an engine without a KV cache, and one with a contiguous region for each sequence.

The contiguous cache: `region_allocator` (the interface of an allocator), `first_fit` and `buddy` (the two
allocators), `reserve` (how many slots a request reserves), `contiguous_manager` (giving sequences their
regions), `region_slots` (writing and reading a region), `contiguous_layout` (attention over regions).

The engine without a cache: `uncached_manager` and `uncached_layout`. Both engines compute attention for one
sequence at a time, with `attend_one`.
"""
