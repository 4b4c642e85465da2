"""NumPy's names of statistics: percentiles, and reductions of what is not NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.ops.comparison import isnan, where
from tenon.ops.cumulative import cumprod, cumsum
from tenon.ops.define import function, layer_function, lift
from tenon.ops.exponential import sqrt
from tenon.ops.joining_and_axes import ravel
from tenon.ops.ordering import quantile
from tenon.ops.reduction import all_, argmax, argmin, max_, mean, min_, nanmean, nansum, prod, sum_
from tenon.ops.statistics import nanquantile
from tenon.types import normalize_axis


@layer_function
def percentile(x: Any, q: float | Sequence[float], axis: int | None = None, keepdims: bool = False,
               method: str = "linear") -> Any:
    """`quantile` with q in per cent.

    >>> tn.percentile(tn.tensor([1.0, 2.0, 4.0]), 75)
    tensor(3.)
    """
    return quantile(x, _share(q), axis, keepdims, method)


@layer_function
def nanpercentile(x: Any, q: float, axis: int | None = None, keepdims: bool = False, method: str = "linear") -> Any:
    """`nanquantile` with q in per cent."""
    return nanquantile(x, _share(q), axis, keepdims, method)


def _share(q: Any) -> Any:
    q = q.tolist() if hasattr(q, "tolist") else q
    return [one / 100 for one in q] if isinstance(q, (list, tuple)) else q / 100


@function
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element less the smallest ("peak to peak").

    >>> tn.ptp(tn.tensor([1.0, 5.0, 2.0]))
    tensor(4.)
    """
    return max_(x, axis=axis, keepdims=keepdims) - min_(x, axis=axis, keepdims=keepdims)


@layer_function
def average(x: Any, axis: int | None = None, weights: Any = None, keepdims: bool = False) -> Any:
    """The mean; with `weights`, of the shape of x or of its axis, the weighted one.

    >>> tn.average(tn.tensor([1.0, 4.0]), weights=tn.tensor([2.0, 1.0]))
    tensor(2.)
    """
    if weights is None:
        return mean(x, axis=axis, keepdims=keepdims)
    x, weights = lift(x), lift(weights)
    if axis is not None and weights.ndim == 1 < x.ndim:
        at = normalize_axis(axis, x.ndim)
        weights = weights.reshape([-1 if k == at else 1 for k in range(x.ndim)])
    weights = weights + x * 0
    return sum_(x * weights, axis=axis, keepdims=keepdims) / sum_(weights, axis=axis, keepdims=keepdims)


# ---------------------------------------------------------------- without NaN

@layer_function
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element that is not NaN; NaN where there is none.

    >>> tn.nanmax(tn.tensor([1.0, float("nan"), 3.0]))
    tensor(3.)
    """
    return _unless_all(x, max_(_known(x, -float("inf")), axis=axis, keepdims=keepdims), axis, keepdims)


@layer_function
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element that is not NaN; NaN where there is none."""
    return _unless_all(x, min_(_known(x, float("inf")), axis=axis, keepdims=keepdims), axis, keepdims)


def _known(x: Any, value: float) -> Any:
    """x with a value in the place of NaN."""
    x = lift(x)
    return where(isnan(x), value, x) if x.dtype.kind in "fc" else x


def _unless_all(x: Any, found: Any, axis: Any, keepdims: bool) -> Any:
    if found.dtype.kind != "f":
        return found
    return where(all_(isnan(x), axis=axis, keepdims=keepdims), float("nan"), found)


@layer_function
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the largest element stands that is not NaN; 0 where there is none."""
    return argmax(_known(x, -float("inf")), axis=axis, keepdims=keepdims)


@layer_function
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the smallest element stands that is not NaN; 0 where there is none."""
    return argmin(_known(x, float("inf")), axis=axis, keepdims=keepdims)


@layer_function
def nanprod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The product of the elements that are not NaN."""
    return prod(_known(x, 1), axis=axis, keepdims=keepdims)


@layer_function
def nancumsum(x: Any, axis: int | None = None) -> Any:
    """Running sums in which NaN counts as 0, along an axis or of all elements."""
    x = _known(x, 0)
    return cumsum(ravel(x), 0) if axis is None else cumsum(x, axis)


@layer_function
def nancumprod(x: Any, axis: int | None = None) -> Any:
    """Running products in which NaN counts as 1, along an axis or of all elements."""
    x = _known(x, 1)
    return cumprod(ravel(x), 0) if axis is None else cumprod(x, axis)


@layer_function
def nanvar(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    """The variance of the elements that are not NaN.

    >>> tn.nanvar(tn.tensor([1.0, float("nan"), 3.0]))
    tensor(1.)
    """
    x = lift(x)
    apart = x - nanmean(x, axis=axis, keepdims=True)
    count = sum_(where(isnan(x), 0.0, 1.0), axis=axis, keepdims=keepdims)
    return nansum(apart * apart, axis=axis, keepdims=keepdims) / (count - correction)


@layer_function
def nanstd(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    """The standard deviation of the elements that are not NaN."""
    return sqrt(nanvar(x, axis, keepdims, correction))
