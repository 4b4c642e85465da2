"""Layouts in which a processor multiplies pairs of bfloat16."""
