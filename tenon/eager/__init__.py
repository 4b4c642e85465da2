"""Operator calls on tensors, run at once with NumPy, and the tape that they leave behind for `backward`."""
