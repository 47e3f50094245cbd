"""The language model in plain PyTorch: `decoder`, `layer`, `leaves`, `rope`, `config`; and its `tokenizer`.

`tiny/` is the model that comes with the package.
"""
