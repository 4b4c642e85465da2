"""What every operator means: one definition each, in the file of its family."""

from tenon.ops import (
    activations,
    arithmetic,
    arranging,
    attention,
    barrier,
    call,
    comparison,
    complex_parts,
    convolution,
    creation,
    decompositions,
    diagonal,
    einsum,
    exponential,
    fourier,
    getitem,
    indexing,
    linalg,
    losses,
    normalization,
    pieces,
    pooling,
    products,
    projections,
    random,
    recurrent,
    reduction,
    rounding,
    scan,
    searching,
    selecting,
    shape,
    slicing,
    solving,
    special,
    statistics,
    trigonometric,
    upsampling,
    windows,
)
from tenon.ops.define import PUBLIC, alias, binary, composite, define, function, unary
from tenon.ops.methods import install_methods

# In the order in which they build on each other.
FAMILIES = (comparison, shape, complex_parts, arithmetic, exponential, trigonometric, rounding, special, pieces,
            creation, arranging, diagonal, reduction, scan, linalg, products, einsum, decompositions,
            solving, slicing, indexing, searching, getitem, windows, convolution, pooling, random, call, barrier,
            activations, projections, losses, normalization, attention, recurrent,
            upsampling,
            fourier,
            statistics,
            selecting)
install_methods()

__all__ = ["FAMILIES", "PUBLIC", "alias", "binary", "composite", "define", "function", "unary"]
