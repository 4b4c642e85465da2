"""Element by element: which is equal, larger, chosen; logic and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import condition_first, logical, same
from tenon.ops.define import aliases, binary, check_kind, define, unary
from tenon.types import DType, TensorType, bool_, broadcast_shapes


def truth(dtype: DType) -> DType:
    """The result of a question."""
    return bool_


# ---------------------------------------------------------------- comparison

def _compare(name: str, ref: Any, scalar: Callable[..., Any], doc: str, kinds: str = "buif",
             commutative: bool = False) -> Op:
    return binary(name, ref, scalar, None, doc, result=truth, kinds=kinds, commutative=commutative, operations=1)


equal = _compare("equal", np.equal, lambda s, x, y: s.eq(x, y), "Whether elements are equal.", kinds="buifc",
                 commutative=True)
not_equal = _compare("not_equal", np.not_equal, lambda s, x, y: s.ne(x, y), "Whether elements differ.", kinds="buifc",
                     commutative=True)
less = _compare("less", np.less, lambda s, x, y: x < y, "Whether x < y.")
less_equal = _compare("less_equal", np.less_equal, lambda s, x, y: x <= y, "Whether x <= y.")
greater = _compare("greater", np.greater, lambda s, x, y: x > y, "Whether x > y.")
greater_equal = _compare("greater_equal", np.greater_equal, lambda s, x, y: x >= y, "Whether x >= y.")

isnan = unary("isnan", np.isnan, lambda s, x: s.isnan(x) if x.dtype.is_floating else s.const(False, bool_), None,
              "Whether elements are not a number.", promote=same, result=truth)
isinf = unary("isinf", np.isinf, lambda s, x: s.eq(s.call("abs", x), s.const(np.inf, x.dtype))
              if x.dtype.is_floating else s.const(False, bool_), None,
              "Whether elements are infinite, of either sign.", promote=same, result=truth)
isfinite = unary("isfinite", np.isfinite, lambda s, x: s.call("abs", x) < np.inf
                 if x.dtype.is_floating else s.const(True, bool_), None,
                 "Whether elements are neither infinite nor NaN.", promote=same, result=truth)
isposinf = unary("isposinf", lambda x: x == np.inf, lambda s, x: s.eq(x, s.const(np.inf, x.dtype))
                 if x.dtype.is_floating else s.const(False, bool_), None,
                 "Whether elements are plus infinity.", promote=same, result=truth, kinds="buif")
isneginf = unary("isneginf", lambda x: x == -np.inf, lambda s, x: s.eq(x, s.const(-np.inf, x.dtype))
                 if x.dtype.is_floating else s.const(False, bool_), None,
                 "Whether elements are minus infinity.", promote=same, result=truth, kinds="buif")

# ---------------------------------------------------------------- choice

where: Op = define(
    "where", type=lambda condition, x, y: TensorType(x.dtype, broadcast_shapes(condition.shape, x.shape, y.shape)),
    ref=np.where, promote=condition_first, elementwise=True,
    vjp=lambda g, z, c, x, y: (None, lambda: where(c, g, 0), lambda: where(c, 0, g)),
    compute=lambda s, i, c, x, y: s.select(c(i), x(i), y(i)),
    operations=1, doc="x where the condition holds, else y; neither side's gradient sees the other's NaN.",
    examples=["where(bool[2, 3], f32[2, 3], f32[2, 3]) -> f32[2, 3]"])


def _to_winner(beats: Op, is_beaten: Op) -> Callable[..., Any]:
    """The gradient of max and min: all of it to the winner, half to each where they are equal, as in PyTorch."""
    return lambda g, z, x, y: (lambda: where(equal(x, y), g * 0.5, where(is_beaten(x, y), 0, g)),
                               lambda: where(equal(x, y), g * 0.5, where(beats(x, y), 0, g)))


maximum = binary("maximum", np.maximum, lambda s, x, y: s.maximum(x, y), _to_winner(greater, less),
                 "The larger; NaN where either is.", kinds="buif", commutative=True, operations=1)
minimum = binary("minimum", np.minimum, lambda s, x, y: s.minimum(x, y), _to_winner(less, greater),
                 "The smaller; NaN where either is.", kinds="buif", commutative=True, operations=1)


def _known(s: Any, x: Any, y: Any, both: Any) -> Any:
    """`both`, or the one that is a number where the other is NaN."""
    return s.select(s.isnan(x), y, s.select(s.isnan(y), x, both)) if x.dtype.is_floating else both


fmax = binary("fmax", np.fmax, lambda s, x, y: _known(s, x, y, s.maximum(x, y)),
              lambda g, z, x, y: (where(logical_or(greater_equal(x, y), isnan(y)), g, 0),
                                  where(logical_or(greater_equal(x, y), isnan(y)), 0, g)),
              "The larger; where one is NaN, the other.", kinds="buif")
fmin = binary("fmin", np.fmin, lambda s, x, y: _known(s, x, y, s.minimum(x, y)),
              lambda g, z, x, y: (where(logical_or(less_equal(x, y), isnan(y)), g, 0),
                                  where(logical_or(less_equal(x, y), isnan(y)), 0, g)),
              "The smaller; where one is NaN, the other.", kinds="buif")


def _clip_type(x: TensorType, min: TensorType | None = None, max: TensorType | None = None) -> TensorType:
    check_kind("clip", x.dtype, "buif")
    return x.with_shape(broadcast_shapes(*(t.shape for t in (x, min, max) if t is not None)))


def _clip_ref(x: Any, low: Any, high: Any) -> Any:
    """NumPy gives the second of equal ones: a zero that is within keeps its sign."""
    x = x if low is None else np.maximum(low, x)
    return x if high is None else np.minimum(high, x)


def _clip_vjp(g: Any, y: Any, x: Any, low: Any, high: Any) -> tuple[Any, ...]:
    def inside() -> Any:
        kept = g if low is None else where(greater_equal(x, low), g, 0)
        return kept if high is None else where(less_equal(x, high), kept, 0)

    def from_low() -> Any:
        held = where(less(x, low), g, 0)
        return held if high is None else where(less(low, high), held, 0)

    def from_high() -> Any:
        over = greater(x, high)
        return where(over if low is None else logical_or(over, less(high, low)), g, 0)
    return inside, low if low is None else from_low, high if high is None else from_high


def _clip_compute(s: Any, i: Any, x: Any, low: Any, high: Any) -> Any:
    out = x(i) if low is None else s.maximum(low(i), x(i))
    return out if high is None else s.minimum(high(i), out)


clip = define(
    "clip", type=_clip_type, ref=_clip_ref, vjp=_clip_vjp, compute=_clip_compute, promote=same, elementwise=True,
    doc="The elements cut to lie between `min` and `max`, either of which may be left out; the gradient passes where "
        "min <= x <= max.",
    examples=["clip(f32[2, 3], f32(-0.5), f32(0.5)) -> f32[2, 3]", "clip(i64[3], i64(0), None) -> i64[3]",
              "clip(f32[2, 3], f32[3], f32[2, 1]) -> f32[2, 3]", "clip(c64[3], c64(0), None) -> error"])


# ---------------------------------------------------------------- logic

logical_and = binary("logical_and", np.logical_and, lambda s, x, y: x & y, None, "Whether both hold (are not zero).",
                     promote=logical, kinds="b",
                     commutative=True, operations=1, examples=["logical_and(bool[2, 3], bool[2, 3]) -> bool[2, 3]"])
logical_or: Op = binary("logical_or", np.logical_or, lambda s, x, y: x | y, None, "Whether either holds (is not zero).",
                    promote=logical, kinds="b",
                    commutative=True, operations=1, examples=["logical_or(bool[2, 3], bool[2, 3]) -> bool[2, 3]"])
logical_xor = binary("logical_xor", np.logical_xor, lambda s, x, y: x ^ y, None, "Whether exactly one holds.",
                     promote=logical, kinds="b",
                     commutative=True, examples=["logical_xor(bool[2, 3], bool[2, 3]) -> bool[2, 3]"])
logical_not = unary("logical_not", np.logical_not, lambda s, x: ~x, None, "Whether elements are zero or false.",
                    promote=logical, kinds="b", operations=1, examples=["logical_not(bool[2, 3]) -> bool[2, 3]"])

# ---------------------------------------------------------------- bits

bitwise_and = binary("bitwise_and", np.bitwise_and, lambda s, x, y: x & y, None, "The bits set in both.", kinds="bui",
    commutative=True)
bitwise_or = binary("bitwise_or", np.bitwise_or, lambda s, x, y: x | y, None, "The bits set in either.", kinds="bui",
    commutative=True)
bitwise_xor = binary("bitwise_xor", np.bitwise_xor, lambda s, x, y: x ^ y, None, "The bits set in one.", kinds="bui",
    commutative=True)
bitwise_invert = unary("bitwise_invert", np.invert, lambda s, x: ~x, None, "Every bit turned round.", promote=same,
                       kinds="bui")


def _shift_left(s: Any, x: Any, y: Any) -> Any:
    ok, zero = (y >= 0) & (y < x.dtype.bits), s.const(0, x.dtype)
    return s.select(ok, x << s.select(ok, y, zero), zero)


def _shift_right(s: Any, x: Any, y: Any) -> Any:
    ok, last = (y >= 0) & (y < x.dtype.bits), s.const(x.dtype.bits - 1, x.dtype)
    gone = s.const(0, x.dtype) if x.dtype.kind == "u" else x >> last
    return s.select(ok, x >> s.select(ok, y, last), gone)


bitwise_left_shift = binary("bitwise_left_shift", np.left_shift, _shift_left, None,
                            "x with its bits moved y places up; 0 when y is the width or more.", kinds="ui",
                            domain=((-9, 9), (0, 6)), counts=True)
bitwise_right_shift = binary("bitwise_right_shift", np.right_shift, _shift_right, None,
                             "x with its bits moved y places down, keeping the sign.", kinds="ui",
                             domain=((-99, 99), (0, 6)))

aliases(eq=equal, ne=not_equal, lt=less, le=less_equal, gt=greater, ge=greater_equal, clamp=clip,
        bitwise_not=bitwise_invert, invert=bitwise_invert, left_shift=bitwise_left_shift,
        right_shift=bitwise_right_shift)
