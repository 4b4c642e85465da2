"""A Python function and its arguments -> one graph, what it read, and what it changed."""
