"""Matrix products with weights in panels, the order in which the innermost loop reads them.

`panel_linear` replaces a `Linear`, and `choice` measures whether that is faster on this processor. The
products themselves have four levels: `panel_linear_loops` and `threaded_products` divide a product among
threads, `panels` multiplies many rows by one or two panels, `tile` keeps the sums in registers, and
`tile_rows` writes them to the result.
"""
