"""How loops are compiled, kept and called.

`compiled` has the decorators, `code_cache` says where compiled code is kept, and `instructions` has what
Python cannot say to a processor. `threads` runs compiled work on PyTorch's threads, and `calls` makes many
such calls in one go.
"""
