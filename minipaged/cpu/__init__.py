"""Everything that numba compiles for CPUs. It replaces whole parts of the plain engine, from outside.

`replace` gives an engine a decoder in compiled code (`decoder`), `recognise` says whether the loops compute a
given one, and `recorded_decode` makes all calls of a decode step in one go. They are made of `layers/`,
`attention/`, `products/` (of matrices) and `arithmetic/` (of vectors), all on top of `compiler/`.

To import a module from here imports numba. Engines do it when their settings ask for compiled code.
"""
