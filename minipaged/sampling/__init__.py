"""From logits to tokens: what a request asks for (`params`), and one token for each row (`sampler`)."""
