"""Attention over a paged KV cache.

Read the modules in this order: `metadata` (how a step is laid out, and the signature of a backend),
`reference` (the readable backend, with which the fast ones are compared), `paged_layout` (how a step's keys
and values are written and read), `layout` (the interface of a KV layout), `backend` (which attention function
an engine uses).
"""
