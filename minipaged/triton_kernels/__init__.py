"""Attention on GPUs, in Triton. Without a GPU the kernels run under Triton's interpreter.

Read in this order: `decode` (one query token for each sequence), `softmax` (the loop over blocks that all
kernels share), `decode_split` (several programs for one sequence), `prefill` (prompts and chunks), `cache`
(writes and block copies). `attention` chooses among them in each step. `tiles` sets the size of the tiles,
and `split_rule` how many programs share a sequence; both depend on the limits of the GPU (`gpu`). `setup`
makes Triton ready.
"""
