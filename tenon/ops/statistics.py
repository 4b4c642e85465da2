"""Statistics and comparisons made of reductions: var_mean, cov, quantiles without NaN, isclose, isin ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.graph.promotion import floating, same
from tenon.ops.arithmetic import abs_
from tenon.ops.comparison import (
    clip,
    equal,
    greater_equal,
    isfinite,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    not_equal,
    where,
)
from tenon.ops.complex_parts import conj, imag
from tenon.ops.creation import as_number, iota, zeros_like
from tenon.ops.cumulative import areas, cummax, cumsum, diff
from tenon.ops.define import check_kind, composite, function, lift
from tenon.ops.diagonal import diagonal
from tenon.ops.indexing import gather, put, take
from tenon.ops.joining_and_axes import concat, expand_dims, ravel, reshaped, squeeze, swapaxes
from tenon.ops.matrix_products import matmul
from tenon.ops.ordering import INTERPOLATION, Ranked, argsort, sort
from tenon.ops.reduction import all_, argmax, max_, mean, min_, std, sum_, var, vector_norm
from tenon.ops.searching import searchsorted
from tenon.ops.shape import cast, full_op
from tenon.ops.splitting import narrow
from tenon.types import bool_, float64, int64, normalize_axes, normalize_axis

# ---------------------------------------------------------------- two results at once

@function
def var_mean(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 0) -> tuple[Any, Any]:
    """The variance and the mean over axes.

    >>> tn.var_mean(tn.tensor([1.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    return var(x, axis=axis, keepdims=keepdims, correction=correction), mean(x, axis=axis, keepdims=keepdims)


@function
def std_mean(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 0) -> tuple[Any, Any]:
    """The standard deviation and the mean over axes."""
    return std(x, axis=axis, keepdims=keepdims, correction=correction), mean(x, axis=axis, keepdims=keepdims)


@function
def aminmax(x: Any, axis: Any = None, keepdims: bool = False) -> tuple[Any, Any]:
    """The smallest and the largest element along axes."""
    return min_(x, axis=axis, keepdims=keepdims), max_(x, axis=axis, keepdims=keepdims)


# ---------------------------------------------------------------- covariance

@function
def cov(x: Any, correction: float = 1, fweights: Any = None, aweights: Any = None, *, rowvar: bool = True) -> Any:
    """The covariance of variables, one a row of x (or a column, without `rowvar`); divided by n - correction.

    `fweights` (whole numbers) say how often each column counts, `aweights` how much.

    >>> tn.cov(tn.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    x = _rows("cov", x, rowvar)
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            weights = cast(lift(given), dtype=x.dtype) * (1 if weights is None else weights)
    if weights is None:
        total: Any = as_number(x.shape[1], x.dtype)
        center, divisor = mean(x, axis=1, keepdims=True), total - correction
    else:
        total = sum_(weights)
        center = sum_(x * weights, axis=1, keepdims=True) / total
        lost = correction if aweights is None else correction * sum_(weights * aweights) / total
        divisor = total - lost
    away = x - center
    products = matmul(away if weights is None else away * weights, swapaxes(conj(away), 0, 1))
    return _one_variable(products / (max(divisor, 0.0) if isinstance(divisor, float) else maximum(divisor, 0)))


@function
def corrcoef(x: Any, *, rowvar: bool = True) -> Any:
    """The correlation of variables, one a row of x (or a column, without `rowvar`): between -1 and 1.

    >>> tn.corrcoef(tn.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    together = cov(x, rowvar=rowvar)
    if together.ndim == 0:
        return together / together
    spread = diagonal(together).sqrt()
    return clip(together / expand_dims(spread, 1) / spread, -1.0, 1.0)


def _rows(name: str, x: Any, rowvar: bool) -> Any:
    x = lift(x)
    if x.ndim > 2:
        raise ShapeError(f"{name}: {x.type} has more than two axes; variables are rows, observations columns")
    x = x if x.dtype.kind in "fc" else cast(x, dtype=floating((x.dtype,))[0])
    if x.ndim < 2:
        return reshaped(x, (1, x.size))
    return x if rowvar else swapaxes(x, 0, 1)


def _one_variable(matrix: Any) -> Any:
    return reshaped(matrix, ()) if matrix.shape == (1, 1) else matrix


# ---------------------------------------------------------------- histograms

@function
def histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many elements of x lie in each of `bins` equal parts of [min, max], in the type of x; others do not count.

    Where min equals max they are those of x.  Raises ArgumentError where min > max, or bins < 1.

    >>> tn.histc(tn.tensor([0.0, 1.0, 1.5, 4.0]), bins=4, min=0, max=4)
    tensor([1., 2., 0., 1.])
    """
    x = ravel(lift(x))
    check_kind("histc", x.dtype, "fiu")
    known = isinstance(min, (int, float)) and isinstance(max, (int, float))
    if bins < 1 or (known and min > max):
        raise ArgumentError(f"histc: {bins} bins from {min} to {max}")
    if known and min == max:
        empty = isinstance(x.shape[0], int) and x.shape[0] == 0
        min, max = (0, 1) if empty else (x.min(), x.max())
    low, high = (cast(lift(end), dtype=x.dtype) for end in (min, max))
    alike = equal(low, high)
    low, high = where(alike, low - 1, low), where(alike, high + 1, high)
    inside = logical_and(greater_equal(x, low), less_equal(x, high))
    place = cast((x - low) * bins / (high - low), dtype=int64)
    place = where(inside, clip(place, 0, bins - 1), 0)
    start = full_op(np.zeros((), x.dtype.numpy), shape=(bins,))
    return put(start, place, cast(inside, dtype=x.dtype), axis=0, reduce="add")


# ---------------------------------------------------------------- distances

@function
def dist(x: Any, y: Any, p: float = 2.0) -> Any:
    """The p-norm of x - y, all elements as one vector.

    >>> tn.dist(tn.tensor([0.0, 3.0]), tn.tensor([4.0, 0.0]))
    tensor(5.)
    """
    return vector_norm(lift(x) - y, ord=p)


@composite(promote=floating, examples=["renorm(f32[2, 3], p=2.0, axis=0, maxnorm=1.0) -> f32[2, 3]"])
def renorm(x: Any, *, p: float, axis: int, maxnorm: float) -> Any:
    """The slices along an axis, those with a p-norm above maxnorm scaled down to it, as in PyTorch."""
    axis = normalize_axis(axis, x.ndim)
    others = tuple(k for k in range(x.ndim) if k != axis)
    above = vector_norm(x, ord=p, axis=others, keepdims=True) > maxnorm
    size = vector_norm(where(above, x, 1.0), ord=p, axis=others, keepdims=True)     # no NaN of others in the gradient
    return x * where(above, maxnorm / (size + 1e-7), 1.0)


@function
def cumulative_trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The running integral of y along an axis by the trapezoid rule; one element fewer than y.

    >>> tn.cumulative_trapezoid(tn.tensor([1.0, 2.0, 3.0]))
    tensor([1.5, 4. ])
    """
    return cumsum(areas(lift(y), x, dx, axis), axis)


# ---------------------------------------------------------------- quantiles



@function
def nanquantile(x: Any, q: float, axis: int | None = None, keepdims: bool = False, method: str = "linear") -> Any:
    """As `quantile`, of the elements that are not NaN; NaN where there is none.

    >>> tn.nanquantile(tn.tensor([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """
    if not 0 <= q <= 1:
        raise ArgumentError(f"nanquantile: q={q} is not between 0 and 1")
    if method not in INTERPOLATION:
        raise ArgumentError(f"nanquantile: no method {method!r}", hint="one of " + ", ".join(INTERPOLATION))
    x = lift(x)
    shape = tuple(1 if axis is None or k == normalize_axis(axis, x.ndim) else n for k, n in enumerate(x.shape))
    x, at = (ravel(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    count = sum_(cast(~isnan(x), dtype=int64), axis=at, keepdims=True)
    place = cast(count - 1, dtype=x.dtype) * q
    below = place.floor()
    share = {"linear": lambda: place - below, "lower": lambda: place * 0.0,
             "higher": lambda: where(place > below, 1.0, 0.0), "midpoint": lambda: where(place > below, 0.5, 0.0),
             "nearest": lambda: place.round() - below}[method]()
    ordered = sort(x, axis=at)
    first = clip(cast(below, dtype=int64), 0, None)
    second = clip(first + 1, None, clip(count - 1, 0, None))
    low, high = gather(ordered, first, axis=at), gather(ordered, second, axis=at)
    out = low + (high - low) * share
    kept = keepdims or x.ndim == 0
    return reshaped(out, shape if kept else tuple(n for k, n in enumerate(x.shape) if k != at))


@function
def nanmedian(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The middle of the elements that are not NaN, or the mean of the two middle ones."""
    return nanquantile(x, 0.5, axis, keepdims)


@function
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> Ranked:
    """The element that stands most often along an axis, of several the smallest, and the last of its places.

    >>> tn.mode(tn.tensor([3, 1, 2, 2, 3]))
    Ranked(values=tensor(2), indices=tensor(3))
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    n = x.shape[axis]
    if n == 0:
        raise ShapeError(f"mode: there are no elements along axis {axis} of {x.type}")
    order, places = argsort(x, axis=axis), iota(n, axis, x.ndim)
    ordered = gather(x, order, axis=axis)
    begins = not_equal(narrow(ordered, axis, 1, n), narrow(ordered, axis, 0, n - 1))
    first = where(begins, narrow(places, axis, 1, n), 0)
    run = places - cummax(concat([zeros_like(narrow(order, axis, 0, 1)), first], axis=axis), axis)
    last = argmax(run, axis=axis, keepdims=True)        # the first of the longest runs ends here
    found = gather(ordered, last, axis=axis), gather(order, last, axis=axis)
    return Ranked(*found) if keepdims else Ranked(squeeze(found[0], axis), squeeze(found[1], axis))


# ---------------------------------------------------------------- nearly equal, among, the same

@composite(promote=same, examples=["isclose(f32[2, 3], f32[3], rtol=0.5) -> bool[2, 3]"])
def isclose(x: Any, y: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether |x - y| <= atol + rtol * |y|, element by element; infinities are close to themselves only.

    >>> tn.isclose(tn.tensor([1.0, 1.0]), tn.tensor([1.0, 1.1]))
    tensor([ True, False])
    """
    if x.dtype.kind not in "fc":
        x, y = (cast(t, dtype=float64) for t in (x, y))
    near = logical_and(isfinite(y), less_equal(abs_(x - y), atol + rtol * abs_(y)))
    near = logical_or(near, equal(x, y))
    return logical_or(near, logical_and(isnan(x), isnan(y))) if equal_nan else near


@function
def allclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether all elements are close, as `isclose` says; a scalar tensor.

    >>> tn.allclose(tn.ones(2), tn.ones(2) + 1e-9)
    tensor(True)
    """
    return all_(isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan))


@function
def array_equal(x: Any, y: Any) -> Any:
    """Whether two tensors have the same shape and elements; a scalar tensor."""
    x, y = lift(x), lift(y)
    return all_(equal(x, y)) if x.shape == y.shape else full_op(literal(False, bool_), shape=())


@function
def isin(x: Any, values: Any, *, invert: bool = False) -> Any:
    """Whether each element is among the values; with `invert`, whether it is not.

    >>> tn.isin(tn.tensor([1, 2, 3]), tn.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    x, values = lift(x), ravel(lift(values))
    if values.shape == (0,):
        return full_op(literal(invert, bool_), shape=x.shape)
    ordered = sort(values)
    at = clip(searchsorted(ordered, x), None, values.shape[0] - 1)
    found = take(ordered, at, axis=0)
    return not_equal(found, x) if invert else equal(found, x)


@function
def isreal(x: Any) -> Any:
    """Whether the imaginary part is 0; true for every real number."""
    x = lift(x)
    return equal(imag(x), 0) if x.dtype.kind == "c" else full_op(literal(True, bool_), shape=x.shape)


# ---------------------------------------------------------------- slopes

@function
def gradient(x: Any, spacing: Any = None, axis: Any = None, edge_order: int = 1) -> tuple[Any, ...]:
    """The slope along each axis by central differences, one-sided at the ends (of second order if edge_order=2).

    `spacing` is a distance, or one an axis, or the positions of the elements along each axis.

    >>> tn.gradient(tn.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    x = lift(x)
    axes = normalize_axes(axis, x.ndim)
    steps = spacing if isinstance(spacing, (tuple, list)) else [1.0 if spacing is None else spacing] * len(axes)
    if len(steps) != len(axes):
        raise ArgumentError(f"gradient: {len(steps)} spacings for {len(axes)} axes")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is 1 or 2, not {edge_order}")
    for a in axes:
        if isinstance(x.shape[a], int) and x.shape[a] < edge_order + 1:
            raise ShapeError(f"gradient: axis {a} of {x.type} needs {edge_order + 1} elements or more")
    return tuple(_slope(x, a, step, edge_order) for a, step in zip(axes, steps, strict=True))


def _slope(x: Any, axis: int, step: Any, edge_order: int) -> Any:
    size = x.shape[axis]
    def at(start: Any, stop: Any) -> Any:
        return narrow(x, axis, start, stop)

    if getattr(step, "ndim", 0):        # positions: distances to the left and to the right of each inner element
        gap = reshaped(diff(lift(step)), [-1 if k == axis else 1 for k in range(x.ndim)])
        left, right = narrow(gap, axis, 0, size - 2), narrow(gap, axis, 1, size - 1)
        first, second = narrow(gap, axis, 0, 1), narrow(gap, axis, 1, 2) if size > 2 else narrow(gap, axis, 0, 1)
        last, before = narrow(gap, axis, size - 2, size - 1), narrow(gap, axis, max(size - 3, 0), max(size - 2, 1))
    else:
        left = right = first = second = last = before = step
    inner = (at(2, size) * (left / (right * (left + right))) + at(1, size - 1) * ((right - left) / (left * right))
             - at(0, size - 2) * (right / (left * (left + right))))
    if edge_order == 1:
        start, end = (at(1, 2) - at(0, 1)) / first, (at(size - 1, size) - at(size - 2, size - 1)) / last
    else:
        start = (at(0, 1) * (-(2 * first + second) / (first * (first + second)))
                 + at(1, 2) * ((first + second) / (first * second)) - at(2, 3) * (first / (second * (first + second))))
        end = (at(size - 3, size - 2) * (last / (before * (before + last)))
               - at(size - 2, size - 1) * ((last + before) / (before * last))
               + at(size - 1, size) * ((2 * last + before) / (last * (before + last))))
    return concat([start, inner, end], axis=axis)
