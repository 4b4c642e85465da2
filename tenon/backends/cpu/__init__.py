"""Loops -> machine code for this processor, and the assembly of a whole graph from such kernels."""
