"""How many outputs of a matrix product lie side by side; see `cpu/products/panel_product.py`."""

PANEL = 32
"""Two of LLVM's vectors. The layout of packed weights and the loops over them agree on it."""
