"""Element by element: arithmetic, comparison, rounding, exponentials ... one definition each."""

from __future__ import annotations

import numpy as np

from tenon.graph.promotion import condition_first, floating
from tenon.ops.define import binary, define, unary
from tenon.types import TensorType, bool_, broadcast_shapes


def conj(x):  # type: ignore[no-untyped-def]
    """The complex conjugate, which is the tensor itself when it is real."""
    return x


# ---------------------------------------------------------------- arithmetic

add = binary("add", np.add, lambda s, x, y: x + y, lambda g, z, x, y: (g, g), "The sum.")
subtract = binary("subtract", np.subtract, lambda s, x, y: x - y, lambda g, z, x, y: (g, -g), "The difference.")
multiply = binary("multiply", np.multiply, lambda s, x, y: x * y,
                  lambda g, z, x, y: (g * conj(y), g * conj(x)), "The product.")
divide = binary("divide", np.divide, lambda s, x, y: x / y,
                lambda g, z, x, y: (g / conj(y), -g * conj(z) / conj(y)), "The quotient, a fraction.", promote=floating)
negative = unary("negative", np.negative, lambda s, x: -x, lambda g, y, x: (-g,), "The negation.", promote=lambda k: k,
                 kinds="uifc")
maximum = binary("maximum", np.maximum, lambda s, x, y: s.maximum(x, y),
                 lambda g, z, x, y: _share(g, x, y, greater_equal(x, y)), "The larger; NaN where either is.", kinds="buif")

exp = unary("exp", np.exp, lambda s, x: s.call("exp", x), lambda g, y, x: (g * conj(y),), "e to the power x.")
log = unary("log", np.log, lambda s, x: s.call("log", x), lambda g, y, x: (g / conj(x),), "The natural logarithm.")
tanh = unary("tanh", np.tanh, lambda s, x: s.call("tanh", x), lambda g, y, x: (g * (1 - conj(y * y)),), "The hyperbolic tangent.")
sin = unary("sin", np.sin, lambda s, x: s.call("sin", x), lambda g, y, x: (g * cos(x),), "The sine.")
cos = unary("cos", np.cos, lambda s, x: s.call("cos", x), lambda g, y, x: (-g * sin(x),), "The cosine.")
sqrt = unary("sqrt", np.sqrt, lambda s, x: s.call("sqrt", x), lambda g, y, x: (g / (2 * y),), "The square root.")

# ---------------------------------------------------------------- comparison

def _compare(name, ref, scalar, doc):  # type: ignore[no-untyped-def]
    return binary(name, ref, scalar, None, doc, result=lambda dtype: bool_)


equal = _compare("equal", np.equal, lambda s, x, y: s.eq(x, y), "Whether elements are equal.")
not_equal = _compare("not_equal", np.not_equal, lambda s, x, y: s.ne(x, y), "Whether elements differ.")
less = _compare("less", np.less, lambda s, x, y: x < y, "Whether x < y.")
less_equal = _compare("less_equal", np.less_equal, lambda s, x, y: x <= y, "Whether x <= y.")
greater = _compare("greater", np.greater, lambda s, x, y: x > y, "Whether x > y.")
greater_equal = _compare("greater_equal", np.greater_equal, lambda s, x, y: x >= y, "Whether x >= y.")

where = define(
    "where", type=lambda condition, x, y: TensorType(x.dtype, broadcast_shapes(condition.shape, x.shape, y.shape)),
    ref=np.where, promote=condition_first, elementwise=True,
    vjp=lambda g, z, c, x, y: (None, where(c, g, 0), where(c, 0, g)),
    compute=lambda s, i, c, x, y: s.select(c(i), x(i), y(i)),
    doc="x where the condition holds, else y; neither side's gradient sees the other's NaN.",
    examples=["where(bool[2, 3], f32[2, 3], f32[2, 3]) -> f32[2, 3]"])


def _share(g, x, y, first):  # type: ignore[no-untyped-def]
    """The gradient of max/min: all to the winner, half to each where they are equal."""
    half = where(equal(x, y), g * 0.5, 0)
    return where(equal(x, y), half, where(first, g, 0)), where(equal(x, y), half, where(first, 0, g))


