"""What every operator means: one definition each, in the file of its family."""

from tenon.ops import (
    barrier,
    call,
    convolution,
    elementwise,
    getitem,
    indexing,
    linalg,
    pooling,
    reduction,
    searching,
    shape,
    slicing,
    windows,
)
from tenon.ops.define import PUBLIC, binary, composite, define, function, unary
from tenon.ops.methods import install_methods

FAMILIES = (elementwise, shape, reduction, linalg, slicing, indexing, searching, getitem, windows, convolution, pooling,
            call, barrier)
install_methods()

__all__ = ["FAMILIES", "PUBLIC", "binary", "composite", "define", "function", "unary"]
