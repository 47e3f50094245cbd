"""From logits to tokens.

The parameters of a request: `params` (samples) and `beam_params` (beams). One token for each row of logits:
`sampler`, with `penalties`, `filters`, `draw` and `uniform`. Log-probabilities: `logprobs` (values) and
`logprob_tensors` (tensors). Beams: `candidates` (the likeliest next tokens) and `beam_search` (which beams
continue).
"""
