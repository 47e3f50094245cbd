"""The figures of the PagedAttention paper, simulated; `figures.py` lists them."""
