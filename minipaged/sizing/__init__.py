"""How large a model's KV cache is, before anything is loaded: `minipaged kv`."""
