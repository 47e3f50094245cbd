"""The arithmetic that attention and matrix products are made of.

`numbers` says what a float32 and a bfloat16 are, `vectors` what can be done with 16 of them at once, `dots`
takes dot products, and `exponential` e to a number.
"""
