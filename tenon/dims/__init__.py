"""Sizes that may be symbols: expressions of them, what is asked about them, and who answers."""
