"""What every operator means: one definition each, in the file of its family."""

from tenon.ops import (
    arithmetic,
    arranging,
    barrier,
    call,
    comparison,
    complex_parts,
    convolution,
    creation,
    custom,
    diagonal,
    exponential,
    getitem,
    indexing,
    linalg,
    pieces,
    pooling,
    reduction,
    rounding,
    scan,
    searching,
    shape,
    slicing,
    special,
    trigonometric,
    windows,
)
from tenon.ops.define import PUBLIC, alias, binary, composite, define, function, unary
from tenon.ops.methods import install_methods

# In the order in which they build on each other.
FAMILIES = (comparison, shape, complex_parts, arithmetic, exponential, trigonometric, rounding, special, pieces, creation,
            arranging, diagonal, reduction, scan, linalg, slicing, indexing, searching, getitem, windows, convolution,
            pooling, call, barrier, custom)
install_methods()

__all__ = ["FAMILIES", "PUBLIC", "alias", "binary", "composite", "define", "function", "unary"]
