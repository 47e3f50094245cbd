"""The language model in plain PyTorch: `decoder`, `layer`, `leaves`, `rope`, `config`; and its `tokenizer`.

`likeness` says whether a decoder is what these modules describe, for what would compute it in another way.
`tiny/` is the model that comes with the package.
"""
