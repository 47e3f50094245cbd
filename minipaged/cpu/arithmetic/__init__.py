"""The arithmetic that attention and matrix products are made of.

`numbers` reads and rounds float32 and bfloat16, `vectors` has the operations on 16 numbers at once, `dots`
computes dot products, and `exponential` computes exp.
"""
