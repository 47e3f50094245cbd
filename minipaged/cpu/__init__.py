"""Everything that is compiled for CPUs, by numba: it replaces whole parts of the plain engine, from outside.

`replace` gives an engine a decoder in compiled code, `recognise` says whether that computes what `model/`
says, and `recorded_decode` makes all calls of a decode step in one go. Below them: `attention/` and its
cache, `layers/`, `products/` (of matrices), `arithmetic/` (of vectors), and the `compiler/`. Importing a
module of this package imports numba. An engine does so when its settings ask for compiled code.
"""
