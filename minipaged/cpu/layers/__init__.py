"""A decoder's layers and its norm in compiled code: each half of a layer is one call.

`layer` and `norm` replace the modules of `model/`. `layer_loops` and `norm_loops` say in which order the
threads do the parts, `norm_and_rotation` has the small work between the products, and `workspace` what they
write meanwhile.
"""
