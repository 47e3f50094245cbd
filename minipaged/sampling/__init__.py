"""From logits to tokens.

What a request asks for: `params` (samples) and `beam_params` (beams). One token for each row: `sampler`, with
`penalties`, `filters`, `draw` and `uniform`. Log-probabilities: `logprobs` (values) and `logprob_tensors`.
Beams: `candidates` (the likeliest next tokens) and `beam_search` (which beams go on).
"""
