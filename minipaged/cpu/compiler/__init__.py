"""How loops are compiled, stored on disk and called.

`compiled` has the decorators, `code_cache` says where compiled code is stored, and `instructions` has
processor instructions that Python lacks. `threads` runs compiled work on PyTorch's threads, and `calls` makes
many such calls in one go.
"""
