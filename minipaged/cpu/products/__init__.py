"""Matrix products with weights in panels, the order in which the innermost loop reads them.

`panel_linear` replaces a `Linear`, and `choice` measures whether that pays on this processor. Inside,
`panel_linear_loops` and `threaded_products` divide a product among threads, `panels` multiplies many rows by
a panel or two, `tile` keeps the sums in registers, and `tile_rows` writes them to their place.
"""
