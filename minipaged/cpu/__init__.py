"""Everything that numba compiles for CPUs. It replaces whole parts of the plain engine, from outside.

`replace` gives an engine a decoder in compiled code (`decoder`), `recognise` says whether the loops compute a
given one, and `recorded_decode` makes all calls of a decode step in one go. These modules use `layers/`,
`attention/`, `products/` (of matrices) and `arithmetic/` (of vectors), all on top of `compiler/`.

Importing a module from here imports numba. Engines do so only when their settings ask for compiled code.
"""
