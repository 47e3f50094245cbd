"""Attention on GPUs, in Triton. Without a GPU the kernels run under Triton's interpreter.

To read in this order: `decode` (one query token for each sequence), `softmax` (the loop over blocks that all
kernels share), `decode_split` (several programs for one sequence), `prefill` (prompts and chunks), `cache`
(writes and block copies). `attention` chooses among them in each step, `tiles` and `split_rule` say how
large the tiles are and how many programs share a sequence, `setup` makes Triton ready.
"""
