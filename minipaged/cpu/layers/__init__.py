"""A decoder's layers and its last norm in compiled code: each half of a layer is one call.

`layer` and `norm` replace the modules of `model/`. `layer_loops` and `norm_loops` say in which order threads
do the parts, `norm_and_rotation` has the small work between the products, and `workspace` the memory for it.
"""
