"""Scripts that made what the package ships. Run from the repository's root."""
