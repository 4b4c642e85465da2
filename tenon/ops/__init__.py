"""What every operator means: one definition each, in the file of its family."""

from tenon.ops import call, elementwise, linalg, reduction, shape
from tenon.ops.define import PUBLIC, binary, composite, define, function, unary
from tenon.ops.methods import install_methods

FAMILIES = (elementwise, shape, reduction, linalg, call)
install_methods()

__all__ = ["FAMILIES", "PUBLIC", "binary", "composite", "define", "function", "unary"]
