"""Loops -> something that runs.  One module a backend; nothing is imported before it is asked for."""
