"""A float that the graph computes, rounded to decimals: to the one nearest to it, as Python's `round` does it.

    round(0.015, 2) == 0.01         # the float lies below 0.015, though 0.015 * 100 is 1.5

The product with a power of ten is rounded itself, so where it comes out half way, its error tells the side.
"""

from __future__ import annotations

from tenon.ops.comparison import equal, greater, less, where
from tenon.ops.shape import cast
from tenon.tensor import Tensor
from tenon.types import float32, float64

MAX_DIGITS = 10             # a factor of 24 bits, by which halves of a float are multiplied exactly
ALL_INTEGERS = 2.0**52      # from here on floats have no fraction


def rounded(x: Tensor, digits: int) -> Tensor:
    """A tensor of float64 with so many decimals, from none to `MAX_DIGITS`."""
    scale = 10.0**digits
    scaled = x * scale
    halfway = equal(scaled - scaled.floor(), 0.5)
    error = _error(x, scale, scaled)
    nearest = where(halfway & greater(error, 0.0), scaled.ceil(),
                    where(halfway & less(error, 0.0), scaled.floor(), scaled.round()))
    found: Tensor = where(less(scaled.abs(), ALL_INTEGERS), nearest / scale, x)
    return found


def _error(x: Tensor, scale: float, product: Tensor) -> Tensor:
    """What the product has lost, exactly: both halves of the float times the scale are floats."""
    upper: Tensor = cast(cast(x, dtype=float32), dtype=float64)
    found: Tensor = (upper * scale - product) + (x - upper) * scale
    return found
