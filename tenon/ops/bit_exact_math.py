"""Functions whose results have the same bits wherever they are computed: by NumPy, by machine code of any vectors.

Libraries' logarithms differ in the last bits.  These are made of what every processor rounds alike: sums, products,
quotients, roots, and the bits of numbers; no product is fused with a sum (`product`).  Each is written once, for arrays
and for expressions.  Random numbers are drawn by them, so that a seed means the same numbers, eager or compiled.

M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988; the
logarithm is that of fdlibm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.define import check_kind, define, unary
from tenon.ops.exponential import exp
from tenon.records import dataclass
from tenon.types import DType, TensorType, as_dtype, broadcast_shapes, float32, float64, int32, int64

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Form:
    """An element type: its bits as integers, and coefficients that are as good as its precision."""

    dtype: DType
    integer: DType
    places: int                     # of the fraction
    lowest: int                     # the bits of the square root of 1/2, where the logarithm's fraction begins
    logarithm: tuple[Sequence[float], Sequence[float]]      # odd and even powers of z, highest first
    least: float                    # that is no subnormal number
    log_2: tuple[float, float]      # in two parts, the first with zeros at its end
    central: tuple[Sequence[float], Sequence[float]]        # numerator and denominator, highest power first
    tails: Sequence[tuple[Sequence[float], Sequence[float]]]


SINGLE = Form(
    float32, int32, 23, 0x3F3504F3,
    ((0.28498786688, 0.66666662693), (0.24279078841, 0.40000972152)),
    2.0 ** -126, (6.9313812256e-01, 9.0580006145e-06),
    ((5.9109374720e1, 1.5929113202e2, 5.0434271938e1, 3.3871327179),
     (6.7187563600e1, 7.8757757664e1, 1.7895169469e1, 1.0)),
    [((1.7023821103e-1, 1.3067284816, 2.7568153900, 1.4234372777), (1.2021132975e-1, 7.3700164250e-1, 1.0))])

DOUBLE = Form(
    float64, int64, 52, 0x3FE6A09E00000000,
    ((1.479819860511658591e-01, 1.818357216161805012e-01, 2.857142874366239149e-01, 6.666666666666735130e-01),
     (1.531383769920937332e-01, 2.222219843214978396e-01, 3.999999999940941908e-01)),
    2.0 ** -1022, (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    ((2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
      1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0),
     (5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
      5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0)),
    [((7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
       3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0),
      (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
       6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0)),
     ((2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
       2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0),
      (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
       1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0))])

PART = 1 << 14
FORMS = {float32: SINGLE, float64: DOUBLE}
CENTRAL, SPLIT, MIDDLE, FAR = 0.425, 5.0, 1.6, 0.180625     # where AS 241 goes over from one quotient to the next


# ---------------------------------------------------------------- on arrays and on expressions

class OnArrays:
    """The operations that NumPy's arrays have other names for."""

    def product(self, x: Any, y: Any) -> Any:
        return x * y

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def const(self, value: float, dtype: DType) -> Any:
        return dtype.numpy.type(value)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y)

    def eq(self, x: Any, y: Any) -> Any:
        return x == y

    def minimum(self, x: Any, y: Any) -> Any:
        return np.minimum(x, y)

    def bits(self, x: Any, dtype: DType) -> Any:
        return x.view(dtype.numpy)

    def cast(self, x: Any, dtype: DType) -> Any:
        return x.astype(dtype.numpy)

    def either(self, condition: Any, then: Function, otherwise: Function, x: Any) -> Any:
        """`then(x)` where the condition holds, else `otherwise(x)`, which few elements are given."""
        out, rest = then(x), np.flatnonzero(~condition)
        if rest.size:
            out[rest] = otherwise(x[rest])
        return out


class OnExpressions:
    """The same, of a compute rule's scalars."""

    def __init__(self, s: Any):
        self.const, self.select, self.eq, self.minimum = s.const, s.select, s.eq, s.minimum
        self.product, self.bits, self.cast = s.product, s.bits, s.cast
        self.sqrt = lambda x: s.call("sqrt", x)
        self.either = lambda condition, then, otherwise, x: s.select(condition, then(x), otherwise(x))


ON_ARRAYS = OnArrays()


def polynomial(s: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """The sum of powers of x, the highest first; in pairs, which do not wait for one another."""
    terms: list[Any] = list(coefficients[::-1])
    while len(terms) > 1:
        sums = [s.product(x, high) + low for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms, x = sums + terms[len(terms) & ~1:], s.product(x, x)
    return terms[0]


def quotient(s: Any, x: Any, parts: tuple[Sequence[float], Sequence[float]]) -> Any:
    """One polynomial by another."""
    return polynomial(s, x, parts[0]) / polynomial(s, x, parts[1])


def logarithm(s: Any, x: Any, form: Form, lower: Any = 0.0) -> Any:
    """The natural logarithm of normal, positive, finite numbers, times 2 to the power -lower."""
    one = ((1 << form.integer.bits - form.places - 2) - 1) << form.places       # the bits of 1.0
    whole = s.bits(x, form.integer) + (one - form.lowest)
    exponent = s.cast((whole >> form.places) - (one >> form.places), form.dtype) - lower
    f = s.bits((whole & ((1 << form.places) - 1)) + form.lowest, form.dtype) - 1.0      # from sqrt(1/2) - 1 on
    half = s.product(s.product(f, 0.5), f)
    q = f / (f + 2.0)
    z = s.product(q, q)
    w = s.product(z, z)
    odd, even = (polynomial(s, w, c) for c in form.logarithm)
    rest = half + (s.product(z, odd) + s.product(w, even))
    low = s.product(exponent, form.log_2[1])
    return s.product(exponent, form.log_2[0]) - ((half - (s.product(q, rest) + low)) - f)


def upper_quantile(s: Any, p: Any, form: Form) -> Any:
    """The number that a standard normal one exceeds with probability p, for p in (0, 1/2]."""
    def central(p: Any) -> Any:
        q = 0.5 - p
        return s.product(q, quotient(s, FAR - s.product(q, q), form.central))

    def tail(p: Any) -> Any:
        r = s.sqrt(0.0 - logarithm(s, p, form))
        near, *far = form.tails
        if not far:
            return quotient(s, r - MIDDLE, near)
        return s.either(r <= SPLIT, lambda r: quotient(s, r - MIDDLE, near),
                        lambda r: quotient(s, r - SPLIT, far[0]), r)
    return s.either(p >= 0.5 - CENTRAL, central, tail, p)


def whole_logarithm(s: Any, x: Any, form: Form) -> Any:
    """The natural logarithm of any number."""
    zero, up = s.const(0.0, form.dtype), s.const(form.places, form.dtype)
    small = x < form.least
    found = logarithm(s, s.select(small, s.product(x, 2.0 ** form.places), x), form, s.select(small, up, zero))
    found = s.select(x < math.inf, found, s.const(math.inf, form.dtype))
    return s.select(x > 0.0, found, s.select(s.eq(x, zero), s.const(-math.inf, form.dtype),
                                             s.const(math.nan, form.dtype)))


def of_array(function: Callable[[Any, Any, Form], Any], x: np.ndarray, form: Form) -> np.ndarray:
    """A function of the elements of an array, which are gone through in parts that the caches hold."""
    flat = x.reshape(-1)
    out = np.empty(flat.shape, form.dtype.numpy)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, PART):
            out[start:start + PART] = function(ON_ARRAYS, flat[start:start + PART], form)
    return out.reshape(x.shape)


# ---------------------------------------------------------------- as operators

def _in_form(function: Callable[[Any, Any, Form], Any]) -> Callable[[Any, Any], Any]:
    def scalar(s: Any, x: Any) -> Any:
        form = FORMS.get(x.dtype, SINGLE)
        return s.cast(function(OnExpressions(s), s.cast(x, form.dtype), form), x.dtype)
    return scalar


portable_log: Op = unary(
    "portable_log", ref=lambda x: of_array(whole_logarithm, x, FORMS[as_dtype(x.dtype)]), kinds="f",
    scalar=_in_form(whole_logarithm), vjp=lambda g, y, x: (g / x,), domain=(0.1, 3.0), public=False,
    doc="The natural logarithm, with the same bits eagerly and compiled.")

def _quantile(s: Any, p: Any, form: Form) -> Any:
    lower = p < 0.5
    z = upper_quantile(s, s.minimum(p, 1.0 - p), form)
    z = s.select(p > 0.0, s.select(p < 1.0, z, s.const(math.inf, form.dtype)), s.const(math.inf, form.dtype))
    return s.select(lower, 0.0 - z, z)


normal_quantile: Op = unary(
    "normal_quantile", ref=lambda p: of_array(_quantile, p, FORMS[as_dtype(p.dtype)]), kinds="f", domain=(0.01, 0.99),
    scalar=_in_form(_quantile), public=False, vjp=lambda g, y, p: (g * (exp(y * y * 0.5) * math.sqrt(2 * math.pi)),),
    doc="The number that a standard normal one is less than with probability p, with the same bits eagerly and "
        "compiled.")


def _scaled_type(x: TensorType, scale: TensorType, shift: TensorType) -> TensorType:
    check_kind("scaled", x.dtype, "f")
    return TensorType(x.dtype, broadcast_shapes(x.shape, scale.shape, shift.shape))


scaled: Op = define(
    "scaled", public=False, type=_scaled_type, promote=same, elementwise=True,
    ref=lambda x, scale, shift: x * scale + shift,
    compute=lambda s, i, x, scale, shift: s.product(x(i), scale(i)) + shift(i),
    vjp=lambda g, y, x, scale, shift: (lambda: g * scale, lambda: g * x, g),
    doc="x * scale + shift, the product rounded before the sum: machine code has the bits that NumPy has.",
    examples=["scaled(f32[2, 3], f32[3], f32(0.5)) -> f32[2, 3]",
              "scaled(f64[2, 3], f64(2.0), f64[2, 1]) -> f64[2, 3]"])
