"""Element by element: the four operations, powers, remainders, signs ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.graph.build import PYTHON_SCALARS
from tenon.graph.ir import Literal
from tenon.graph.op import Op
from tenon.graph.promotion import floating, numeric, same
from tenon.ops.comparison import equal, greater, less_equal, logical_and, truth, where
from tenon.ops.complex_parts import conj, real
from tenon.ops.define import aliases, binary, composite, function, lift, unary
from tenon.ops.shape import cast
from tenon.ops.upcast_narrow import rounded_once
from tenon.types import float32, float64, int32, int64, promote_types, real_of

# ---------------------------------------------------------------- arithmetic

add = binary("add", np.add, lambda s, x, y: x + y if x.dtype.kind != "b" else x | y,
             lambda g, z, x, y: (g, g), "The sum.", commutative=True, counts=True, operations=1)
subtract = binary("subtract", np.subtract, lambda s, x, y: x - y, lambda g, z, x, y: (g, lambda: -g),
                  "The difference.", kinds="uifc",
                  counts=True, operations=1,
                  nan_hint="infinity minus infinity is NaN: look at where the infinities come from, with inf=True")

def _scaled_second(op: Op) -> Callable[..., Any]:
    """PyTorch's `add(x, y, alpha=a)`: the second operand times a number."""
    def elsewhere(args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if "alpha" not in named:
            return None
        others = {name: value for name, value in named.items() if name != "alpha"}
        x, y = (*args, *others.values()) if len(args) + len(others) == 2 else (None, None)
        return None if y is None else op(x, multiply(y, named["alpha"]))
    return elsewhere


add.elsewhere, subtract.elsewhere = _scaled_second(add), _scaled_second(subtract)
multiply: Op = binary("multiply", np.multiply, lambda s, x, y: x * y if x.dtype.kind != "b" else x & y,
                  lambda g, z, x, y: (lambda: g * conj(y), lambda: g * conj(x)), "The product.",
                  commutative=True, counts=True, operations=1,
                  nan_hint="zero times infinity is NaN, and large factors overflow: scale them down")
divide = binary("divide", np.divide, lambda s, x, y: x / y,
                lambda g, z, x, y: (lambda: g / conj(y), lambda: -g * conj(z) / conj(y)),
                "The quotient, a fraction; integers are divided in the default float.", promote=floating,
                operations=10, nan_hint="a divisor that may be 0 needs a least value, as in x / (y + 1e-8)")
negative = unary("negative", np.negative, lambda s, x: -x, lambda g, y, x: (-g,), "The negation.", promote=same,
                 kinds="uifc", counts=True, operations=1)
positive = unary("positive", np.positive, lambda s, x: x, lambda g, y, x: (g,), "The elements unchanged.",
                 promote=same, kinds="uifc")
copy = unary("copy", np.copy, lambda s, x: x, lambda g, y, x: (g,), "The same elements, as a tensor of its own.",
             promote=same, operations=0)
square = unary("square", np.square, lambda s, x: x * x, lambda g, y, x: (g * (2 * conj(x)),), "The square.",
               promote=numeric, kinds="uifc", counts=True, operations=1)
reciprocal = unary("reciprocal", lambda x: np.divide(1, x), lambda s, x: 1.0 / x,
                   lambda g, y, x: (-g * conj(y * y),), "One over the elements.",
                   nan_hint="a number that may be 0 needs a least value, as in 1 / (y + 1e-8)")


def _abs(s: Any, x: Any) -> Any:
    if x.dtype.is_floating:
        return s.call("abs", x)
    return s.select(x < 0, -x, x) if x.dtype.kind == "i" else x


def _sign(s: Any, x: Any) -> Any:
    one, zero = s.const(1, x.dtype), s.const(0, x.dtype)
    if x.dtype.kind == "u":
        return s.select(x > 0, one, zero)
    rest = x + zero if x.dtype.is_floating else x       # nan stays; -0 becomes 0, as NumPy's
    return s.select(x > 0, one, s.select(x < 0, s.const(-1, x.dtype), rest))


def _signbit(s: Any, x: Any) -> Any:
    if not x.dtype.is_floating:
        return x < 0
    return s.bits(x, int64) < 0 if x.dtype is float64 else s.bits(s.cast(x, float32), int32) < 0


abs_ = unary("abs", np.abs, _abs, lambda g, y, x: (g * sign(x),), "The absolute value; its derivative at 0 is 0.",
             promote=same, result=real_of, counts=True)
sign: Op = unary("sign", np.sign, _sign, lambda g, y, x: (None,) if x.dtype.kind != "c" else (_sign_vjp(g, y, x),),
             "-1, 0 or 1 by the sign of the elements; x / abs(x) for complex ones.", promote=same, kinds="uifc")
signbit = unary("signbit", np.signbit, _signbit, None, "Whether the sign bit is set; true for -0.0.", promote=same,
                result=truth, kinds="uif")
copysign: Op = binary("copysign", np.copysign, lambda s, x, y: s.call("copysign", x, y),
                  lambda g, z, x, y: (g * sign(x) * copysign(1.0, y), None), "x with the sign of y.",
                  promote=floating, kinds="f")
nextafter = binary("nextafter", np.nextafter, lambda s, x, y: s.call("nextafter", x, y),
                   lambda g, z, x, y: (lambda: where(equal(x, y), 0, g), lambda: where(equal(x, y), g, 0)),
                   "The float next to x on the way to y.", promote=floating, kinds="f")


def _sign_vjp(g: Any, y: Any, x: Any) -> Any:
    """Of x / |x|: the part of the gradient at right angles to y, over |x|."""
    return where(equal(x, 0), 0, (g - real(conj(g) * y) * y) / abs_(x))


# ---------------------------------------------------------------- powers

def _power_ref(x: Any, y: Any) -> Any:
    if np.ndim(y) == 0 and y == 2:
        return x * x
    if np.ndim(y) == 0 and y == 3 and x.dtype.kind != "c":      # NumPy's power takes a hundred times as long
        return x * x * x
    if np.ndim(y) == 0 and abs(y) == 0.5 and x.dtype.kind == "f":       # roots, as in PyTorch: of -inf there is none
        return np.sqrt(x) if y > 0 else (1 / np.sqrt(x, dtype=np.result_type(x, np.float32))).astype(x.dtype)
    if y.dtype.kind == "i" and np.any(y < 0):       # whole numbers: 1, -1 or, as 1/2 is cut off, 0
        inverse = np.where(np.abs(x) == 1, np.power(x, y & 1), 0)
        return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))
    return np.power(x, y)


def _power(s: Any, x: Any, y: Any) -> Any:
    """Floats by `pow`, or what is as exact; integers by multiplying."""
    times = getattr(y, "value", 0)
    if x.dtype.is_floating:
        match times:
            case 3.0:
                return x * x * x
            case -1.0:
                return s.const(1.0, x.dtype) / x
            case 0.5:
                return s.call("sqrt", x)
            case -0.5:
                return s.const(1.0, x.dtype) / s.call("sqrt", x)
        return s.call("pow", x, y)
    return math.prod([x] * (times - 1), start=x) if times in range(1, 9) else _whole_power(s, x, y)


def _whole_power(s: Any, x: Any, y: Any) -> Any:
    """The product of x ** 2 ** k over the bits k of y."""
    one, square = s.const(1, x.dtype), x
    product = one
    for k in range(y.dtype.bits - (y.dtype.kind == "i")):
        product = s.select(s.eq((y >> k) & 1, 1), product * square, product)
        square = square * square
    if y.dtype.kind != "i":
        return product
    unit = s.select(s.eq((y & 1), 1), x, one)
    inverse = s.select(s.eq(x, 1) | s.eq(x, -1), unit, s.const(0, x.dtype))
    return s.select(y < 0, inverse, product)


def _power_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, Any]:
    def base() -> Any:
        if isinstance(y, Literal):
            n = y.value
            return g * conj(n * x ** (n - 1)) if n != 0 else where(False, g, 0)
        return where(equal(y, 0), 0, g * conj(y * x ** (y - 1)))

    def exponent() -> Any:
        flat = equal(x, 0) if x.dtype.kind == "c" else logical_and(equal(x, 0), y >= 0)
        return g * conj(where(flat, 0, z * where(flat, 1, x).log()))
    return base, exponent


power_op = binary("power", _power_ref, _power, _power_vjp, "x to the power y.", promote=numeric, kinds="uifc",
                  domain=((0.3, 2.0), (-2.0, 3.0)), counts=True, operations=10)


@function
def power(x: Any, y: Any) -> Any:
    """x to the power y, element by element; integers stay integers and wrap round.

    >>> tn.tensor([1.0, 2.0, 3.0]) ** 2
    tensor([1., 4., 9.])

    Raises ArgumentError for an integer tensor to a negative Python integer, whose result would be a fraction.
    """
    if isinstance(y, int) and y < 0 and lift(x).dtype.kind in "bui":
        raise ArgumentError("power: an integer to a negative integer power is a fraction",
                            hint=f"write x ** {float(y)}, or cast x to a float first")
    return power_op(x, y)


@composite(promote=floating, examples=["float_power(f32[2, 3], f32[2, 3]) -> f64[2, 3]"], domain=(0.3, 2.0))
def float_power(x: Any, y: Any) -> Any:
    """x to the power y, in float64 or complex128."""
    wide = promote_types(x.dtype, float64)
    return power_op(cast(x, dtype=wide), cast(y, dtype=wide))


# ---------------------------------------------------------------- division with a remainder

def _float_divmod(s: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """NumPy's: the remainder has the sign of y, and the quotient is exact where it can be."""
    one, zero = s.const(1, x.dtype), s.const(0, x.dtype)
    rest = s.call("fmod", x, y)
    other_side = s.ne(rest, zero) & ((y < 0) ^ (rest < 0))
    whole = (x - rest) / y - s.select(other_side, one, zero)
    down = s.call("floor", whole)
    down = s.select(whole - down > 0.5, down + 1.0, down)
    quotient = s.select(s.eq(whole, zero), s.call("copysign", zero, x / y), down)
    remainder = s.select(s.eq(rest, zero), s.call("copysign", zero, y), s.select(other_side, rest + y, rest))
    return s.select(s.eq(y, zero), x / y, quotient), remainder


def _int_fmod(s: Any, x: Any, y: Any) -> Any:
    rest = x % y
    if x.dtype.kind == "u":
        return rest
    return s.select(s.ne(rest, s.const(0, x.dtype)) & ((x < 0) ^ (y < 0)), rest - y, rest)


floor_divide = binary("floor_divide", np.floor_divide,
                      lambda s, x, y: _float_divmod(s, x, y)[0] if x.dtype.is_floating else x // y,
                      lambda g, z, x, y: (None, None),
                      "The quotient rounded down; an integer divided by 0 gives 0.", promote=numeric, kinds="uif",
                      domain=((-9, 9), (1, 4)))
remainder = binary("remainder", np.remainder,
                   lambda s, x, y: _float_divmod(s, x, y)[1] if x.dtype.is_floating else x % y,
                   lambda g, z, x, y: (g, lambda: -g * floor_divide(x, y)),
                   "What x leaves when divided by y; it has the sign of y.", promote=numeric, kinds="uif",
                   domain=((-9, 9), (1, 4)))
fmod = binary("fmod", np.fmod, lambda s, x, y: s.call("fmod", x, y) if x.dtype.is_floating else _int_fmod(s, x, y),
              lambda g, z, x, y: (g, lambda: -g * (x / y).trunc()),
              "What x leaves when divided by y; it has the sign of x.", promote=numeric, kinds="uif",
              domain=((-9, 9), (1, 4)))
gcd = binary("gcd", np.gcd, None, None, "The greatest common divisor.", kinds="ui")
lcm = binary("lcm", np.lcm, None, None, "The least common multiple.", kinds="ui")


@function
def divmod_(x: Any, y: Any) -> tuple[Any, Any]:
    """`(x // y, x % y)`."""
    return floor_divide(x, y), remainder(x, y)


@function
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """The quotient; rounded down with rounding_mode="floor", towards zero with "trunc", as PyTorch says it.

    >>> tn.div(tn.tensor(-7.0), 2.0, rounding_mode="trunc")
    tensor(-3.)
    """
    if rounding_mode is None:
        return divide(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode != "trunc":
        raise ArgumentError(f"div: rounding_mode is None, 'floor' or 'trunc', not {rounding_mode!r}")
    x = lift(x)
    if x.dtype.kind not in "fc" and lift(y).dtype.kind not in "fc":
        return (x - fmod(x, y)) // y
    return divide(x, y).trunc()


# ---------------------------------------------------------------- combinations

hypot = binary("hypot", np.hypot, lambda s, x, y: s.call("hypot", x, y),
               lambda g, z, x, y: (lambda: g * (x / z), lambda: g * (y / z)),
               "The length of the vector (x, y), without overflow on the way.", promote=floating, kinds="f")


@composite(promote=same, examples=["lerp(f32[2, 3], f32[2, 3], f32(0.25)) -> f32[2, 3]"])
@rounded_once
def lerp(x: Any, y: Any, weight: Any) -> Any:
    """The point between x (weight 0) and y (weight 1); exact at both ends."""
    near = x + weight * (y - x)
    return where(abs_(weight) < 0.5, near, y - (y - x) * (1 - weight))


@composite(public=False, promote=same, examples=["addcmul(f32[2, 3], f32[2, 3], f32[3], value=0.5) -> f32[2, 3]"])
@rounded_once
def addcmul_(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    """x + value * a * b."""
    return x + (a * b if value == 1 else value * a * b)


@composite(public=False, promote=floating, domain=(0.5, 2.0),
           examples=["addcdiv(f32[2, 3], f32[2, 3], f32[3], value=0.5) -> f32[2, 3]"])
@rounded_once
def addcdiv_(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    """x + value * a / b."""
    return x + (a / b if value == 1 else value * a / b)


@function
def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    """x + value * a * b; a tensor `value` is multiplied like the others."""
    return addcmul_(x, a, b, value=value) if isinstance(value, PYTHON_SCALARS) else lift(x) + value * lift(a) * b


@function
def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    """x + value * a / b; a tensor `value` is multiplied like the others."""
    return addcdiv_(x, a, b, value=value) if isinstance(value, PYTHON_SCALARS) else lift(x) + value * lift(a) / b


@composite(promote=same, examples=["heaviside(f32[2, 3], f32(0.5)) -> f32[2, 3]"])
def heaviside(x: Any, y: Any) -> Any:
    """0 where x < 0, 1 where x > 0, y where x == 0, NaN where x is."""
    return where(equal(x, 0), y, where(greater(x, 0), 1, where(less_equal(x, 0), 0, x)))


aliases(clone=copy, sub=subtract, mul=multiply, true_divide=divide, neg=negative, absolute=abs_, pow=power,
        mod=remainder, floor_div=floor_divide, sgn=sign)
