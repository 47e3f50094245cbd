"""Attention over a paged KV cache. `metadata` says how a step is laid out, `reference` is the
readable version and the oracle, the others are fast; `backend` chooses."""
