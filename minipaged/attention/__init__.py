"""Attention over a paged KV cache, and what a KV layout is to the model.

`metadata` says how a step is laid out, `reference` is the readable version and the oracle, and `backend`
chooses between it and the fast ones, which are in `triton_kernels/` and `cpu/`. `layout` is what the runner
needs of a KV layout, and `paged_layout` is the one of blocks. The others are in `baseline/`.
"""
