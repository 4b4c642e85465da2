"""Element by element: error functions, gamma functions, Bessel functions."""

from __future__ import annotations

import math
from typing import Any

from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops import special_reference as reference
from tenon.ops.comparison import equal, where
from tenon.ops.define import check_kind, define, function, unary
from tenon.ops.exponential import call, exp
from tenon.types import TensorType

SLOPE = 2 / math.sqrt(math.pi)


def _polygamma_type(x: TensorType, *, n: int) -> TensorType:
    check_kind("polygamma", x.dtype, "f")
    return x


erf = unary("erf", reference.erf, call("erf"), lambda g, y, x: (g * (exp(-x * x) * SLOPE),), "The error function.",
            kinds="f")
erfc = unary("erfc", reference.erfc, call("erfc"), lambda g, y, x: (g * (exp(-x * x) * -SLOPE),),
             "1 - erf(x), exact where x is large.", kinds="f")
erfinv = unary("erfinv", reference.erfinv, call("erfinv"), lambda g, y, x: (g * (exp(y * y) / SLOPE),),
               "The inverse of the error function.", kinds="f", domain=(-0.9, 0.9))
lgamma = unary("lgamma", reference.lgamma, call("lgamma"), lambda g, y, x: (g * digamma(x),),
               "The logarithm of the absolute value of the gamma function.", kinds="f", domain=(0.3, 4.0))
digamma: Op = unary("digamma", reference.digamma, call("digamma"), lambda g, y, x: (g * polygamma_op(x, n=1),),
                "The derivative of lgamma.", kinds="f", domain=(0.3, 4.0))
polygamma_op: Op = define(
    "polygamma", public=False, type=_polygamma_type, ref=reference.polygamma, promote=floating, elementwise=True,
    vjp=lambda g, y, x, n: (g * polygamma_op(x, n=n + 1),), doc="The n-th derivative of digamma, n >= 1.",
    domain=(0.5, 4.0), examples=["polygamma(f32[2, 3], n=1) -> f32[2, 3]"])
i0 = unary("i0", reference.i0, None, lambda g, y, x: (g * i1(x),), "The modified Bessel function of order 0.",
           kinds="f")
i1: Op = unary("i1", reference.i1, None, lambda g, y, x: (g * (i0(x) - where(equal(x, 0), 0.5, y / x)),),
           "The modified Bessel function of order 1.", kinds="f")


@function
def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma; n is a Python integer.  Raises ArgumentError where n < 0.

    >>> tn.polygamma(1, tn.tensor(1.0))
    tensor(1.6449)
    """
    if n < 0:
        raise ArgumentError(f"polygamma: n must not be negative, got {n}")
    return polygamma_op(x, n=int(n)) if n else digamma(x)
