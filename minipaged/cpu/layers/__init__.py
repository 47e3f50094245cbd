"""A decoder's layers and its last norm in compiled code. Each half of a layer takes one call.

`layer` and `norm` replace the modules of `model/`. `layer_loops` and `norm_loops` divide the work among
threads, `norm_and_rotation` has the small operations between the products, and `workspace` has memory for
intermediate results.
"""
