"""ATen's operators along axes: sums, extremes, running totals, orders, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type, axis_of, is_value
from tenon.types import int64


def _axes(x: Any, dim: Any) -> Any:
    """The axes that a `dim` names; None or an empty list: all."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(x.ndim))
    return tuple(axis_of(d, x.ndim) for d in (dim if isinstance(dim, (list, tuple)) else (dim,)) if x.ndim)


def _sum(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return tn.sum(as_type(x, at.dtype), axis=_axes(x, dim), keepdims=keepdim, dtype=at.dtype)


def _prod(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return tn.prod(as_type(x, at.dtype), axis=_axes(x, dim), keepdims=keepdim, dtype=at.dtype)


def _mean(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return tn.mean(as_type(x, at.dtype), axis=_axes(x, dim), keepdims=keepdim)


def _along(function: Callable[..., Any]) -> Rule:
    def rule(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return function(x, axis=_axes(x, dim), keepdims=keepdim)
    return rule


def _correction(dim: Any, unbiased: Any, correction: Any) -> float:
    return correction if correction is not None else 1 if unbiased is None else int(unbiased)


def _variance(at: AtenCall, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
              correction: Any = None) -> Any:
    if isinstance(dim, bool):       # var(x, unbiased)
        dim, unbiased = None, dim
    return tn.var(x, axis=_axes(x, dim), keepdims=keepdim, correction=_correction(dim, unbiased, correction))


def _variance_and_mean(at: AtenCall, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
                       correction: Any = None) -> Any:
    dims = None if isinstance(dim, bool) else dim
    return (_variance(at, x, dim, unbiased, keepdim, correction=correction),
            tn.mean(x, axis=_axes(x, dims), keepdims=keepdim))


def _extreme(value: Callable[..., Any], place: Callable[..., Any]) -> Rule:
    """The largest or smallest of all, of two tensors, or along an axis, with its place."""
    def rule(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return value(x)
        if x.ndim == 0:
            return x, tn.full((), 0, dtype=int64)
        axis = axis_of(dim, x.ndim)
        return value(x, axis=axis, keepdims=keepdim), place(x, axis=axis, keepdims=keepdim)
    return rule


def _place(function: Callable[..., Any]) -> Rule:
    def rule(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return tn.full((), 0, dtype=int64)
        found = function(x, axis=None if dim is None else axis_of(dim, x.ndim))
        return tn.reshape(found, at.shape)
    return rule


def _running(function: Callable[..., Any]) -> Rule:
    def rule(at: AtenCall, x: Any, dim: int, dtype: Any = None) -> Any:
        return as_type(x, at.dtype) if x.ndim == 0 else function(as_type(x, at.dtype), dim, dtype=at.dtype)
    return rule


def _running_extreme(function: Callable[..., Any]) -> Rule:
    return lambda at, x, dim: function(x, dim, return_indices=True)


def _softmax(function: Callable[..., Any]) -> Rule:
    def rule(at: AtenCall, x: Any, dim: int, half_to_float: bool = False, **_: Any) -> Any:
        x = as_type(x, at.dtype)
        return function(x, axis=axis_of(dim, x.ndim)) if x.ndim else function(tn.reshape(x, (1,)))[0]
    return rule


def _softmax_slope(at: AtenCall, g: Any, y: Any, dim: int, dtype: Any) -> Any:
    total = tn.multiply(g, y)
    return tn.subtract(total, tn.multiply(y, tn.sum(total, axis=axis_of(dim, y.ndim), keepdims=True)))


def _log_softmax_slope(at: AtenCall, g: Any, y: Any, dim: int, dtype: Any) -> Any:
    return tn.subtract(g, tn.multiply(tn.exp(y), tn.sum(g, axis=axis_of(dim, y.ndim), keepdims=True)))


def _norm(at: AtenCall, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.dtype.kind == "c":
        x = tn.abs(x)
    return tn.vector_norm(as_type(x, at.dtype), ord=float(ord), axis=_axes(x, dim), keepdims=keepdim)


def _dist(at: AtenCall, x: Any, y: Any, p: Any = 2) -> Any:
    return _norm(at, tn.subtract(x, y), p)


def _sort(at: AtenCall, x: Any, *args: Any, dim: int | None = None, descending: bool = False,
          stable: Any = None) -> Any:
    """sort(x, dim, descending) and sort.stable(x, stable=, dim=, descending=)."""
    if args and isinstance(args[0], int) and not isinstance(args[0], bool):
        dim, descending = args[0], (*args, descending)[1]
    axis = axis_of(-1 if dim is None else dim, x.ndim)
    if x.ndim == 0:
        return x, tn.full((), 0, dtype=int64)
    places = tn.argsort(x, axis=axis, descending=descending)
    return tn.gather(x, places, axis=axis), as_type(places, int64)


def _topk(at: AtenCall, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        raise UnmappedOperator("topk of a number")
    values, places = tn.topk(x, k, axis=axis_of(dim, x.ndim), largest=largest)
    return values, as_type(places, int64)


def _kth(at: AtenCall, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if x.ndim == 0:
        return x, tn.full((), 0, dtype=int64)
    value, place = tn.kthvalue(x, k, axis_of(dim, x.ndim), keepdim)
    return value, as_type(place, int64)


def _median(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower of two middle elements, and its place; the first NaN where there is one."""
    whole = dim is None or x.ndim == 0
    flat = tn.reshape(x, (-1,)) if whole else x
    axis = 0 if whole else axis_of(dim, x.ndim)
    value, place = _kth(at, flat, (flat.shape[axis] + 1) // 2, axis, True)
    if x.dtype.kind == "f":
        missing = tn.isnan(flat)
        place = tn.where(tn.any(missing, axis=axis, keepdims=True), tn.argmax(missing, axis=axis, keepdims=True), place)
        value = tn.gather(flat, place, axis=axis)
    return tn.reshape(value, at.shape) if dim is None else (
        tn.reshape(value, at.shape), as_type(tn.reshape(place, at.shape), int64))


def _median_of_numbers(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The same of what is not NaN, which sorts behind it."""
    whole = dim is None or x.ndim == 0
    flat = tn.reshape(x, (-1,)) if whole else x
    axis = 0 if whole else axis_of(dim, x.ndim)
    order = tn.argsort(flat, axis=axis, stable=True)
    count = tn.sum(tn.logical_not(tn.isnan(flat)), axis=axis, keepdims=True)
    place = tn.take_along_axis(order, tn.maximum(tn.floor_divide(tn.subtract(count, 1), 2), 0), axis=axis)
    value = tn.reshape(tn.take_along_axis(flat, place, axis=axis), at.shape)
    return value if dim is None else (value, as_type(tn.reshape(place, at.shape), int64))


def _any(function: Callable[..., Any]) -> Rule:
    def rule(at: AtenCall, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        found = function(x if x.dtype.kind == "b" else tn.not_equal(x, 0), axis=_axes(x, dim), keepdims=keepdim)
        return as_type(found, at.dtype)
    return rule


def _maximum_of_two(rule: Rule, two: Callable[[Any, Any], Any]) -> Rule:
    """max(x, y), whose second argument is no axis."""
    return lambda at, x, dim=None, *rest, **keywords: two(as_type(x, at.dtype), as_type(dim, at.dtype)) \
        if is_value(dim) else rule(at, x, dim, *rest, **keywords)


REDUCTIONS: dict[str, Rule] = {
    "sum": _sum, "prod": _prod, "mean": _mean, "amax": _along(tn.max), "amin": _along(tn.min),
    "logsumexp": _along(tn.logsumexp), "any": _any(tn.any), "all": _any(tn.all), "var": _variance,
    "_is_any_true": _any(tn.any), "_is_all_true": _any(tn.all),
    "var_mean": _variance_and_mean, "std": lambda at, x, *a, **k: tn.sqrt(_variance(at, x, *a, **k)),
    "max": _maximum_of_two(_extreme(tn.max, tn.argmax), tn.maximum),
    "min": _maximum_of_two(_extreme(tn.min, tn.argmin), tn.minimum),
    "argmax": _place(tn.argmax), "argmin": _place(tn.argmin), "cumsum": _running(tn.cumsum),
    "cumprod": _running(tn.cumprod), "cummax": _running_extreme(tn.cummax), "cummin": _running_extreme(tn.cummin),
    "logcumsumexp": lambda at, x, dim: tn.logcumsumexp(x, dim),
    "_softmax": _softmax(tn.softmax), "_log_softmax": _softmax(tn.log_softmax), "softmax": _softmax(tn.softmax),
    "log_softmax": _softmax(tn.log_softmax), "_softmax_backward_data": _softmax_slope,
    "_log_softmax_backward_data": _log_softmax_slope, "linalg_vector_norm": _norm, "dist": _dist,
    "sort": _sort, "topk": _topk, "kthvalue": _kth, "median": _median, "nanmedian": _median_of_numbers,
}
