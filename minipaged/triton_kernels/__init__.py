"""What runs on GPUs, in Triton: attention, a layer's small steps, sampling. Without a GPU it is interpreted.

Read in this order: `decode` (one query token for each sequence), `softmax` (the loop over blocks that all
kernels share), `decode_split` (several programs for one sequence), `prefill` (prompts and chunks), `cache`
(writes and block copies). `attention` chooses among them in each step. `tiles` sets the size of the tiles,
and `split_rule` how many programs share a sequence; both depend on the limits of the GPU (`gpu`). `setup`
makes Triton ready.

Beside attention: `layer_kernels` has the small steps of a layer, one kernel each; `fused_decoder` is a
decoder that is made of them; `fused` puts it in the place of the plain one, where it computes the same.
`sampling` filters and draws tokens.
"""
