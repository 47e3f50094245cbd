"""Attention. `layout` says what a KV layout is to the model; `paged`, `contiguous` and `uncached` are the
three there are.

Over a paged KV cache: `metadata` says how a step is laid out, `reference` is the readable version and
the oracle, the others are fast; `backend` chooses. `one_sequence` is for the other two layouts."""
