"""All code that numba compiles for CPUs. An engine can use it in place of its plain PyTorch parts.

`replace` gives an engine a decoder in compiled code (`decoder`). `recognise` says whether the compiled loops
can compute a given decoder. `recorded_decode` makes all calls of a decode step in one go. These modules use
`layers/`, `attention/`, `products/` (matrix products) and `arithmetic/` (of vectors). All of these use
`compiler/`.

Importing a module from here imports numba. Engines do so only when their settings ask for compiled code.
"""
