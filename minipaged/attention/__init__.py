"""Attention over a paged KV cache.

To read in this order: `metadata` (how a step is laid out, and what a backend is), `reference` (the readable
version, and the oracle of the others), `paged_layout` (how a step's keys and values are written and read),
`layout` (what any KV layout is to the model), `backend` (which attention an engine runs with).
"""
