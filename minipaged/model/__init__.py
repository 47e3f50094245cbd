"""The language model: its shape, its arithmetic, its weights and its tokenizer."""
