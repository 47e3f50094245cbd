"""The language model in plain PyTorch: `decoder`, `layer`, `rope`, `config`, and its `tokenizer`.

`likeness` checks whether a decoder still computes what these modules describe. Code that would replace the
decoder by a faster one asks it first. `tiny/` is the model that comes with the package.
"""
