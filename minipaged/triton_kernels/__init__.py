"""The Triton kernels: attention, a layer's small steps, sampling. Without a GPU they are interpreted.

Read in this order: `decode` (one query token for each sequence), `softmax` (the loop over blocks that all
kernels share), `decode_split` (several programs for one sequence), `prefill` (prompts and chunks), `cache`
(writes and block copies). `attention` chooses among these kernels in each step. `tiles` sets the size of the
tiles, and `split_rule` sets how many programs share a sequence. Both depend on the limits of the GPU (`gpu`).
`setup` prepares Triton.

The other modules are not about attention. `layer_kernels` has the small steps of a layer, one kernel each.
`fused_decoder` has a decoder that uses these kernels. `fused` replaces the plain decoder by this one if both
compute the same. `sampling` filters and draws tokens.
"""
