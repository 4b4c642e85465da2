"""Many elements to one along axes: sum, max, mean ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import hold_where_natural
from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.op import Op
from tenon.graph.operators import Operators
from tenon.graph.promotion import floating, logical, same
from tenon.ops.arithmetic import add, multiply, sign
from tenon.ops.batching import position_batch
from tenon.ops.comparison import equal, isfinite, isnan, maximum, minimum, not_equal, where
from tenon.ops.complex_parts import conj, real
from tenon.ops.creation import as_number
from tenon.ops.define import aliases, check_kind, composite, define, function
from tenon.ops.linear_recurrence import product_of_others_vjp
from tenon.ops.masked_reductions import mask_of, only, take_initial, take_mask
from tenon.ops.shape import cast, reshape_op, restore
from tenon.ops.short_axis_reductions import reduced
from tenon.types import (
    DType,
    Shape,
    TensorType,
    as_dtype,
    bool_,
    float32,
    int64,
    normalize_axes,
    real_of,
    uint64,
)


def reduced_shape(shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape after reducing these axes."""
    if keepdims:
        return tuple(1 if k in axis else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axis)


def source_index(i: tuple[Any, ...], k: tuple[Any, ...], axis: tuple[int, ...], ndim: int,
                 keepdims: bool) -> tuple[Any, ...]:
    """The input index for output index `i` and reduction index `k`."""
    outer = iter([x for n, x in enumerate(i) if n not in axis] if keepdims else i)
    inner = iter(k)
    return tuple(next(inner) if n in axis else next(outer) for n in range(ndim))


def reducing(kind: str) -> Callable[..., Any]:
    """The compute rule of a reduction of this kind."""
    def compute(s: Any, i: Any, x: Any, axis: tuple[int, ...], keepdims: bool, dtype: DType | None = None) -> Any:
        def body(k: tuple[Any, ...]) -> Any:
            element = x(source_index(i, k, axis, x.ndim, keepdims))
            return element if dtype is None else s.cast(element, dtype)
        return s.reduce(kind, tuple(x.shape[a] for a in axis), body)
    return compute


def axes_and_flag(x: TensorType, axis: Any, keepdims: bool) -> dict[str, Any]:
    """The one form of axis= and keepdims=: all reduced axes, sorted."""
    return {"axis": tuple(sorted(normalize_axes(axis, x.ndim))), "keepdims": bool(keepdims)}


def sum_dtype(dtype: DType) -> DType:
    """Small integers are summed in 64 bits, as in the Array API standard."""
    return {"b": int64, "i": int64, "u": uint64}.get(dtype.kind, dtype)


# ---------------------------------------------------------------- sums and products

def _total_type(x: TensorType, *, axis: Any = None, keepdims: bool = False, dtype: DType | None = None) -> TensorType:
    return TensorType(dtype or sum_dtype(x.dtype), reduced_shape(x.shape, axis, keepdims))


def _total_attrs(x: TensorType, axis: Any, keepdims: bool, dtype: Any) -> dict[str, Any]:
    return {**axes_and_flag(x, axis, keepdims), "dtype": as_dtype(dtype) if dtype is not None else sum_dtype(x.dtype)}


def _total_ref(combine: np.ufunc) -> Callable[..., Any]:
    def ref(x: Any, axis: Any, keepdims: bool, dtype: DType) -> Any:
        if dtype.kind in "iu" and np.can_cast(x.dtype, dtype.numpy):    # by blocks: no wide copy
            return reduced(combine, x, axis, keepdims, None if x.dtype == dtype.numpy else dtype.numpy)
        narrow = dtype.is_floating and dtype.bits == 16
        return reduced(combine, _as(x, float32 if narrow else dtype), axis, keepdims)
    return ref


def _as(x: Any, dtype: DType) -> Any:
    x = x.real if x.dtype.kind == "c" and dtype.kind in "uif" else x
    return x if x.dtype is dtype.numpy else x.astype(dtype.numpy, copy=False)


sum_ = define(
    "sum", type=_total_type, canonical=_total_attrs, ref=_total_ref(np.add), compute=reducing("add"),
    autocast="wide",
    vjp=lambda g, y, x, axis, keepdims, dtype: (restore(g, x.shape, axis, keepdims),),
    batch="axis",
    counts=True, operations=1,
    doc="The sum over axes (all of them by default); integers are summed in 64 bits.  The sum of nothing is 0.",
    examples=["sum(f32[2, 3], axis=(1,), keepdims=False, dtype=f64) -> f64[2]", "sum(i8[2, 3], axis=(0, 1)) -> i64",
              "sum(f32[2, 3], axis=(0,), keepdims=True) -> f32[1, 3]", "sum(f32[2, 3], axis=(2,)) -> error"])


@composite(public=False, promote=same, vjp=lambda g, y, x, axis, keepdims: (product_of_others_vjp(g, x, axis),),
           examples=["product_of_others(f32[2, 3], axis=(1,), keepdims=False) -> f32[2, 3]"])
def product_of_others(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The product over axes of all elements but the one at each place.

    It is that of all, divided; where there is one zero, it gets the product of the others, and these get nothing.
    """
    zero = equal(x, 0)
    others = where(zero, 1, x)
    lone = equal(zero.sum(axis=axis, keepdims=keepdims), 1)
    at_zero = where(lone, others.prod(axis=axis, keepdims=keepdims), 0)
    hole, whole = (restore(t, x.shape, axis, keepdims) for t in (at_zero, x.prod(axis=axis, keepdims=keepdims)))
    return where(zero, hole, whole / others)


def _prod_vjp(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool, dtype: DType) -> tuple[Any]:
    others = product_of_others(x, axis=axis, keepdims=keepdims)
    return (restore(g, x.shape, axis, keepdims) * conj(others),)


prod = define(
    "prod", type=_total_type, canonical=_total_attrs, ref=_total_ref(np.multiply), compute=reducing("mul"),
    vjp=_prod_vjp, autocast="wide",
    batch="axis",
    counts=True, operations=1,
    doc="The product over axes; integers are multiplied in 64 bits.  The product of nothing is 1.",
    examples=["prod(f32[2, 3], axis=(1,)) -> f32[2]", "prod(i8[2, 3]) -> i64"])


def reduced_size(shape: Shape, axis: tuple[int, ...]) -> Dim:
    """How many elements are reduced to one."""
    return product(shape[a] for a in axis)


def wide(dtype: DType) -> DType:
    """What sums of this type are kept in, so that they neither overflow nor lose digits."""
    return float32 if dtype.is_floating and dtype.bits == 16 else dtype


@composite(promote=floating, autocast="wide", canonical=axes_and_flag, batch="axis", operations=1, examples=[
    "mean(f32[2, 3], axis=(1,), keepdims=True) -> f32[2, 1]", "mean(f16[2, 3]) -> f16", "mean(i64[4]) -> f32"])
def mean_(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean over axes (all of them by default); of integers, in the default float.  The mean of nothing is NaN."""
    total = sum_(x, axis=axis, keepdims=keepdims, dtype=wide(x.dtype))
    found = total / as_number(reduced_size(x.shape, axis), real_of(total.dtype))
    return found if found.dtype is x.dtype else cast(found, dtype=x.dtype)


@function
def mean(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None, *, where: Any = None) -> Any:
    """The mean over axes (all of them by default), of the elements as `dtype`; of integers, in the default float.

    `where` says which elements count.

    >>> tn.mean(tn.tensor([1, 2]), dtype=tn.float64)
    tensor(1.5, dtype=float64)
    """
    x = x if dtype is None else cast(x, dtype=as_dtype(dtype))
    if where is None or where is True:
        return mean_(x, axis=axis, keepdims=keepdims)
    mask = mask_of(x, where)
    part = mean_(only(x, mask, 0), axis=axis, keepdims=keepdims)
    return part / mean_(cast(mask, dtype=part.dtype), axis=axis, keepdims=keepdims)


def _moment_attrs(x: TensorType, axis: Any, keepdims: bool, correction: float) -> dict[str, Any]:
    return {**axes_and_flag(x, axis, keepdims), "correction": correction}


@composite(promote=floating, autocast="wide", canonical=_moment_attrs, batch="axis", operations=1, examples=[
    "var(f32[2, 3], axis=(1,), keepdims=True, correction=1) -> f32[2, 1]", "var(f32[2, 3]) -> f32",
    "var(c64[3]) -> f32"])
def var(x: Any, *, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    """The variance over axes: squared distances from the mean, over n - correction (1 gives PyTorch's default)."""
    y = cast(x, dtype=wide(x.dtype))
    away = y - mean(y, axis=axis, keepdims=True)
    squares = real(away * conj(away))
    total = sum_(squares, axis=axis, keepdims=keepdims)
    count = as_number(reduced_size(x.shape, axis), total.dtype)
    divisor = max(count - correction, 0.0) if isinstance(count, float) else count - correction
    return cast(total / divisor, dtype=real_of(x.dtype))


@composite(promote=floating, autocast="wide", canonical=_moment_attrs, batch="axis", examples=[
    "std(f32[2, 3], axis=(0,), correction=1) -> f32[3]", "std(f64[2, 3]) -> f64"])
def std(x: Any, *, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    """The standard deviation over axes: the square root of `var`; its derivative where it is 0 is 0, as PyTorch's."""
    square = var(x, axis=axis, keepdims=keepdims, correction=correction)
    none = equal(square, 0)
    return where(none, 0, where(none, 1, square).sqrt())


# ---------------------------------------------------------------- the largest, the smallest, any, all

def _extreme_type(name: str) -> Callable[..., TensorType]:
    def rule(x: TensorType, *, axis: Any = None, keepdims: bool = False) -> TensorType:
        check_kind(name, x.dtype, "buif")
        check_not_empty(name, x, axis)
        return x.with_shape(reduced_shape(x.shape, axis, keepdims))
    return rule


def check_not_empty(name: str, x: TensorType, axis: tuple[int, ...]) -> None:
    """Raise ShapeError where the reduction has nothing to choose from."""
    hold_where_natural(*(x.shape[a] - 1 for a in axis))
    for a in axis:
        if isinstance(x.shape[a], int) and x.shape[a] == 0:
            raise ShapeError(f"{name}: axis {a} of {x} is empty, there is no element to take")


def _extreme_vjp(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> tuple[Any]:
    """Shared evenly among the elements that are equal to the extreme."""
    hit = cast(equal(x, restore(y, x.shape, axis, keepdims)), dtype=g.dtype)
    return (hit * restore(g / hit.sum(axis=axis, keepdims=keepdims), x.shape, axis, keepdims),)


def _of_two(op: Op) -> Callable[..., Any]:
    """PyTorch's `max(x, y)`: the larger of two elements, where the second argument is a tensor and no axis."""
    def elsewhere(args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        given = (*args, *(value for name, value in named.items() if name == "other"))
        if len(given) != 2 or len(named) > len(given) - len(args) or not isinstance(given[1], (np.ndarray, Operators)):
            return None
        return op(*given)
    return elsewhere


def _extreme(name: str, ref: Any, doc: str, of_two: Op) -> Op:
    return define(name, type=_extreme_type(name), canonical=axes_and_flag, vjp=_extreme_vjp, compute=reducing(name),
                  batch="axis", operations=1, ref=lambda x, axis, keepdims: reduced(ref, x, axis, keepdims), doc=doc,
                  elsewhere=_of_two(of_two),
                  examples=[f"{name}(f32[2, 3], axis=(1,), keepdims=False) -> f32[2]", f"{name}(i64[2, 3]) -> i64",
                            f"{name}(f32[2, 0], axis=(1,)) -> error"])


max_ = _extreme("max", np.maximum, "The largest element along axes; NaN where there is one.  Equal elements share the "
                               "gradient.  Raises ShapeError where an axis is empty.", maximum)
min_ = _extreme("min", np.minimum, "The smallest element along axes; NaN where there is one.  Equal elements share the "
                               "gradient.  Raises ShapeError where an axis is empty.", minimum)


def _test(name: str, ref: Callable[..., Any], doc: str) -> Op:
    def rule(x: TensorType, *, axis: Any = None, keepdims: bool = False) -> TensorType:
        return TensorType(bool_, reduced_shape(x.shape, axis, keepdims))
    return define(name, type=rule, canonical=axes_and_flag, compute=reducing(name), promote=logical,
                  batch="axis", ref=lambda x, axis, keepdims: ref(x, axis, keepdims=keepdims), doc=doc,
                  examples=[f"{name}(bool[2, 3], axis=(1,), keepdims=False) -> bool[2]", f"{name}(f32[2, 3]) -> bool"])


any_ = _test("any", np.any, "Whether any element holds (is not zero); false where there is none.")
all_ = _test("all", np.all, "Whether all elements hold (are not zero); true where there is none.")

take_mask(sum_, 0, add)
take_mask(prod, 1, multiply)
take_mask(any_, False)
take_mask(all_, True)
take_initial(max_, maximum, any_)
take_initial(min_, minimum, any_)


def _position(name: str, ref: Callable[..., Any], doc: str) -> Op:
    def rule(x: TensorType, *, axis: Any = None, keepdims: bool = False) -> TensorType:
        check_kind(name, x.dtype, "buif")
        check_not_empty(name, x, axis)
        return TensorType(int64, reduced_shape(x.shape, axis, keepdims))

    def canonical(x: TensorType, axis: Any, keepdims: bool) -> dict[str, Any]:
        if isinstance(axis, (tuple, list)) and 1 < len(axis) < x.ndim:
            raise ShapeError(f"{name}: one axis or all of them, not {axis}")
        return axes_and_flag(x, axis, keepdims)

    def position(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        if len(axis) == 1:
            return ref(x, axis[0], keepdims=keepdims)
        if x.ndim and not axis:
            return np.zeros(x.shape)        # of one element each
        return ref(x.reshape(-1)).reshape((1,) * x.ndim if keepdims else ())
    return define(name, type=rule, canonical=canonical, ref=position, compute=reducing(name), doc=doc,
                  batch=position_batch, operations=1,
                  examples=[f"{name}(f32[2, 3], axis=(1,), keepdims=False) -> i64[2]", f"{name}(f32[2, 3]) -> i64",
                            f"{name}(f32[0]) -> error"])


argmax = _position("argmax", np.argmax, "The position of the first largest element (or NaN) along an axis, or in the "
                                        "flattened tensor.  Raises ShapeError where there is none.")
argmin = _position("argmin", np.argmin, "The position of the first smallest element (or NaN) along an axis, or in the "
                                        "flattened tensor.  Raises ShapeError where there is none.")


@composite(canonical=axes_and_flag, batch="axis", examples=["count_nonzero(f32[2, 3], axis=(1,)) -> i64[2]"])
def count_nonzero(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements along axes are not zero."""
    return sum_(not_equal(x, 0), axis=axis, keepdims=keepdims)


@composite(autocast="wide", canonical=axes_and_flag, batch="axis", examples=["nansum(f32[2, 3], axis=(1,)) -> f32[2]"])
def nansum(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum over axes of what is not NaN."""
    return sum_(where(isnan(x), 0, x), axis=axis, keepdims=keepdims)


@composite(promote=floating, autocast="wide", canonical=axes_and_flag,
           batch="axis", examples=["nanmean(f32[2, 3], axis=(1,)) -> f32[2]"])
def nanmean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean over axes of what is not NaN."""
    count = sum_(~isnan(x), axis=axis, keepdims=keepdims)
    return nansum(x, axis=axis, keepdims=keepdims) / cast(count, dtype=real_of(x.dtype))


# ---------------------------------------------------------------- exponentials and norms

def _logsumexp_vjp(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> tuple[Any]:
    seed, total = (restore(t, x.shape, axis, keepdims) for t in (g, y))
    at_infinity = where(equal(x, np.inf), 0, -np.inf)       # where inf - inf would make a NaN
    return (seed * where(isfinite(total) | isnan(total), x - total, at_infinity).exp(),)


@composite(promote=floating, autocast="wide", canonical=axes_and_flag, vjp=_logsumexp_vjp, batch="axis", examples=[
    "logsumexp(f32[2, 3], axis=(1,), keepdims=True) -> f32[2, 1]", "logsumexp(f32[2, 0], axis=(1,)) -> f32[2]"])
def logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) over axes, without overflow on the way; -inf where there is nothing."""
    if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axis):
        return sum_(x.exp(), axis=axis, keepdims=keepdims).log()
    top = max_(x, axis=axis, keepdims=True)
    base = where(isfinite(top), top, 0)
    total = sum_((x - base).exp(), axis=axis, keepdims=keepdims)
    return total.log() + (base if keepdims else reshape_op(base, shape=total.shape))


def _norm_attrs(x: TensorType, ord: Any, axis: Any, keepdims: bool) -> dict[str, Any]:
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"norm: ord must be a number, inf or -inf, not {ord!r}")
    return {"ord": float(ord), **axes_and_flag(x, axis, keepdims)}


def _norm_vjp(g: Any, y: Any, x: Any, ord: float, axis: tuple[int, ...], keepdims: bool) -> tuple[Any]:
    """0 at x = 0, as in PyTorch."""
    seed, size = (restore(t, x.shape, axis, keepdims) for t in (g, y))
    if ord == 0:
        return (None,)
    if abs(ord) == math.inf:
        hit = cast(equal(abs(x), size), dtype=g.dtype)
        return (seed * sign(x) * (hit / hit.sum(axis=axis, keepdims=True)),)
    if ord == 2:
        return (x * where(equal(size, 0), 0, seed / where(equal(size, 0), 1, size)),)       # divides once a vector
    flat = equal(x, 0)
    ratio = where(flat, 1, abs(x)) / where(equal(size, 0), 1, size)
    return (where(flat, 0, seed * sign(x) * ratio ** (ord - 1)),)


@composite(promote=floating, autocast="wide", canonical=_norm_attrs, vjp=_norm_vjp, batch="axis", examples=[
    "vector_norm(f32[2, 3], ord=2.0, axis=(1,)) -> f32[2]", "vector_norm(f32[2, 3], ord=3.0, axis=(0,)) -> f32[3]",
    "vector_norm(f32[2, 3], ord=inf, axis=(1,)) -> f32[2]",
    "vector_norm(f32[2, 3], ord=1.0, keepdims=True) -> f32[1, 1]"])
def vector_norm(x: Any, *, ord: float = 2.0, axis: Any = None, keepdims: bool = False) -> Any:
    """(sum |x|**ord) ** (1 / ord) over axes; `ord` may be inf, -inf or 0 (how many are not zero)."""
    size = abs(x)
    if ord == 0:
        return cast(count_nonzero(x, axis=axis, keepdims=keepdims), dtype=size.dtype)
    if abs(ord) == math.inf:
        return (max_ if ord > 0 else min_)(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum_(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return sum_(real(x * conj(x)), axis=axis, keepdims=keepdims).sqrt()
    return sum_(size ** ord, axis=axis, keepdims=keepdims) ** (1 / ord)


@function
def norm(x: Any, ord: Any = 2.0, axis: Any = None, keepdims: bool = False) -> Any:
    """The length of vectors along axes, by default of all elements as one vector; `vector_norm` with `ord`.

    "fro" is 2, "nuc" the sum of a matrix's singular values; `tn.linalg.norm` has the other norms of matrices.

    >>> tn.norm(tn.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if ord == "nuc":
        return x.matrix_norm("nuc", (-2, -1) if axis is None else axis, keepdims)
    return vector_norm(x, ord=2.0 if ord in ("fro", None) else ord, axis=axis, keepdims=keepdims)


aliases(amax=max_, amin=min_)
