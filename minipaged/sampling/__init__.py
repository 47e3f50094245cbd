"""From logits to tokens.

`params` holds the parameters of a request that samples, and `beam_params` those of a beam search. `sampler`
chooses one token for each row of logits; it uses `penalties`, `filters`, `draw` and `uniform`.
`logprob_tensors` computes log-probabilities, and `logprobs` holds them as values. For beams, `candidates`
finds the likeliest next tokens, and `beam_search` decides which beams continue.
"""
