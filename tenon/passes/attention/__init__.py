"""Attention written in plain operators, found by its pattern."""
