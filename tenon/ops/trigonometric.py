"""Element by element: circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import floating
from tenon.ops.arithmetic import abs_, hypot
from tenon.ops.comparison import equal, less, logical_or, maximum, where
from tenon.ops.complex_parts import conj
from tenon.ops.define import aliases, binary, composite, unary
from tenon.ops.exponential import call, rsqrt
from tenon.ops.upcast_narrow import rounded_once

INSIDE = (-0.9, 0.9)

sin = unary("sin", np.sin, call("sin"), lambda g, y, x: (g * conj(cos(x)),), "The sine.", operations=10)
cos: Op = unary("cos", np.cos, call("cos"), lambda g, y, x: (-g * conj(sin(x)),), "The cosine.", operations=10)
tan = unary("tan", np.tan, call("tan"), lambda g, y, x: (g * conj(1 + y * y),), "The tangent.", domain=(-1.2, 1.2))
asin = unary("asin", np.arcsin, call("asin"), lambda g, y, x: (g * conj(rsqrt(1 - x * x)),), "The inverse sine.",
             domain=INSIDE)
acos = unary("acos", np.arccos, call("acos"), lambda g, y, x: (-g * conj(rsqrt(1 - x * x)),), "The inverse cosine.",
             domain=INSIDE)
atan = unary("atan", np.arctan, call("atan"), lambda g, y, x: (g / conj(1 + x * x),), "The inverse tangent.")
sinh = unary("sinh", np.sinh, call("sinh"), lambda g, y, x: (g * conj(cosh(x)),), "The hyperbolic sine.")
cosh: Op = unary("cosh", np.cosh, call("cosh"), lambda g, y, x: (g * conj(sinh(x)),), "The hyperbolic cosine.")


def _tanh_ref(x: Any) -> Any:
    """NumPy's; of complex numbers with an infinite real part, with the sign of zero that the Array API asks for."""
    y = np.tanh(x)
    if x.dtype.kind == "c" and (far := np.isinf(x.real) & np.isfinite(x.imag)).any():
        y = np.asarray(y)
        y.imag = np.where(far, np.copysign(0, x.imag), y.imag)
    return y


tanh = unary("tanh", _tanh_ref, call("tanh"), lambda g, y, x: (g * conj(1 - y * y),), "The hyperbolic tangent.",
    operations=10)
asinh = unary("asinh", np.arcsinh, call("asinh"),
              lambda g, y, x: (g * conj(rsqrt(1 + x * x)) if x.dtype.kind == "c" else g / hypot(x, 1),),
              "The inverse hyperbolic sine.")
acosh = unary("acosh", np.arccosh, call("acosh"), lambda g, y, x: (g * conj(rsqrt(x - 1) * rsqrt(x - -1)),),
              "The inverse hyperbolic cosine, for x >= 1.", domain=(1.2, 3.0))    # x + 1 loses the sign of a 0 part
atanh = unary("atanh", np.arctanh, call("atanh"), lambda g, y, x: (g / conj(1 - x * x),),
              "The inverse hyperbolic tangent.", domain=INSIDE)


def _atan2_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(y, -x) over the square of the length, of which float16 has few: all is a share of what is larger."""
    larger = maximum(abs_(x), abs_(y))
    flat = logical_or(equal(larger, 0), equal(larger, math.inf))
    larger = where(flat, 1, larger)
    x, y = where(flat, 0, x / larger), where(flat, 0, y / larger)
    scaled = g / where(flat, 1, x * x + y * y)
    return scaled * y / larger, scaled * -x / larger


atan2 = binary("atan2", np.arctan2, call("atan2"), _atan2_vjp,
               "The angle of the point with height x and width y, from -pi to pi.", promote=floating, kinds="f")


NEAR_ZERO = 2e-3        # where a series has the slope of sinc, which is a cancellation by sines: to 3e-11 here


@composite(promote=floating, examples=["sinc(f32[2, 3]) -> f32[2, 3]"])
@rounded_once
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0."""
    near = less(abs_(x), NEAR_ZERO)
    angle = where(near, 1, x) * math.pi
    square = where(near, x, 0) * where(near, x, 0) * math.pi ** 2
    return where(near, 1 - square / 6 * (1 - square / 20 * (1 - square / 42)), sin(angle) / angle)


@composite(promote=floating, examples=["deg2rad(f32[2, 3]) -> f32[2, 3]"])
def deg2rad(x: Any) -> Any:
    """Degrees as radians."""
    return x * (math.pi / 180)


@composite(promote=floating, examples=["rad2deg(f32[2, 3]) -> f32[2, 3]"])
def rad2deg(x: Any) -> Any:
    """Radians as degrees."""
    return x * (180 / math.pi)


aliases(arcsin=asin, arccos=acos, arctan=atan, arcsinh=asinh, arccosh=acosh, arctanh=atanh, arctan2=atan2,
        radians=deg2rad, degrees=rad2deg)
