"""Matrix products with weights in panels, the order in which the innermost loop reads them.

From outside to inside: `panel_linear` (what replaces a `Linear`), `panel_linear_loops` and `shared_products`
(who does which part), `panels` (many rows over one panel or two), `tile` (the sums in registers) and
`tile_rows`. `choice` measures whether panels pay on this processor.
"""
