"""Graphs of per-element formulas -> loops: expressions, kernels, and the decisions which loop runs where."""
