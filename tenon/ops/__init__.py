"""What every operator means: one definition each, in the file of its family."""

from tenon.ops import convolution, elementwise, linalg, reduction, shape, windows
from tenon.ops.define import PUBLIC, binary, composite, define, function, unary
from tenon.ops.methods import install_methods

FAMILIES = (elementwise, shape, reduction, linalg, windows, convolution)
install_methods()

__all__ = ["FAMILIES", "PUBLIC", "binary", "composite", "define", "function", "unary"]
