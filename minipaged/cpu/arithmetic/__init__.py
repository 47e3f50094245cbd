"""Arithmetic of compiled loops, below matrices: what a float32 and a bfloat16 are, vectors in LLVM's terms, e
to a number, and dot products.

Attention and matrix products are made of it.
"""
