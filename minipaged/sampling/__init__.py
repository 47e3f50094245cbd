"""Sampling: from one step's logits to one token per row.

`params` says what a request may ask for, `sampler` chooses the tokens, `uniform` supplies the
randomness, `logprobs` holds what is reported. `params`, `uniform` and `logprobs` do without torch.
"""
