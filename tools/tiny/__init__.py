"""The tools that made the embedded model, in this order: prompts, corpus, clean, train, card."""
