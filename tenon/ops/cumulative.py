"""Running totals along an axis: cumsum, cumprod, cummax ..., and differences of neighbours.

A running total is filled in an order: as a per-element formula it would add the same elements again and again.
Those of float32 run in float64, as PyTorch's do: of 600,000 tenths the last would be 60,333 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.axis_rule import beside_axis
from tenon.graph.op import Op
from tenon.graph.promotion import floating, same
from tenon.ops.comparison import equal, where
from tenon.ops.complex_parts import conj
from tenon.ops.creation import zeros_like
from tenon.ops.define import check_kind, composite, define, function, lift
from tenon.ops.indexing import scatter_op
from tenon.ops.joining_and_axes import concat, expand_dims, ravel, reshaped
from tenon.ops.linear_recurrence import cumprod_gradient_vjp
from tenon.ops.reduction import sum_dtype
from tenon.ops.shape import broadcast_to, cast, full_op
from tenon.ops.splitting import narrow
from tenon.types import DType, TensorType, as_dtype, int64, normalize_axis


def _scan(name: str, total: Callable[[Any, int], Any], start: float, step: Callable[[Any, Any, Any], Any],
          vjp: Callable[..., Any], doc: str, promote: Any = same, kinds: str = "buifc",
          exact: bool = True, wide: bool = False, **fields: Any) -> Op:
    """A running total, `step(s, total, element)` after each; `reverse` runs from the last element to the first.

    `wide` keeps that of float32 in float64.
    """
    def rule(x: TensorType, *, axis: int, reverse: bool = False) -> TensorType:
        check_kind(name, x.dtype, kinds)
        return x

    def ref(x: Any, axis: int, reverse: bool) -> Any:
        return np.flip(total(np.flip(x, axis), axis), axis) if reverse else total(x, axis)
    def fill(s: Any, x: Any, axis: int, reverse: bool) -> None:
        s.scan((x,), axis, reverse, [start], lambda state, elements, place: (step(s, state[0], elements[0]),), wide)
    return define(name, public=False, type=rule, ref=ref, vjp=vjp, fill=fill, promote=promote, batch="axis", doc=doc,
                  exact=exact, **fields, axis_rule=beside_axis(),
                  canonical=lambda x, axis, reverse: {"axis": normalize_axis(axis, x.ndim), "reverse": bool(reverse)},
                  examples=[f"{name}(f32[2, 3], axis=1) -> f32[2, 3]",
                            f"{name}(f32[2, 3], axis=0, reverse=True) -> f32[2, 3]",
                            f"{name}(f32[2, 3], axis=2) -> error"])


@composite(public=False, promote=same,
           vjp=lambda h, y, g, x, axis, reverse: cumprod_gradient_vjp(h, g, x, axis, reverse),
           examples=["cumprod_gradient(f32[2, 3], f32[2, 3], axis=1, reverse=False) -> f32[2, 3]"])
def cumprod_gradient(g: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    """The gradient of the running product of x.

    Up to the first zero, by division; at it, from the products without it; after it, nothing.
    """
    y = cumprod_op(x, axis=axis, reverse=reverse)
    zero = equal(x, 0)
    first = zero & equal(cumsum_op(cast(zero, dtype=int64), axis=axis, reverse=reverse), 1)
    without = cumprod_op(where(first, 1, x), axis=axis, reverse=reverse)
    before = cumsum_op(g * conj(y), axis=axis, reverse=not reverse) / conj(where(zero, 1, x))
    return where(first, cumsum_op(g * conj(without), axis=axis, reverse=not reverse), before)


def _logcumsumexp_vjp(g: Any, y: Any, x: Any, axis: int, reverse: bool) -> tuple[Any]:
    known = where(equal(y, -np.inf), 0, y)          # beside an infinite total nothing else counts
    return (shares(g, known, x, axis=axis, reverse=not reverse),)


def _shares_vjp(h: Any, out: Any, g: Any, y: Any, x: Any, axis: int, reverse: bool) -> tuple[Any, Any, Any]:
    """The sum is linear in g: its transpose runs the other way."""
    of_g = shares(h, -x, -y, axis=axis, reverse=not reverse)
    return of_g, -g * of_g, h * out


@composite(public=False, promote=same, vjp=_shares_vjp,
           examples=["shares(f32[2, 3], f32[2, 3], f32[2, 3], axis=1, reverse=True) -> f32[2, 3]"])
def shares(g: Any, y: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    """The running sum of g * exp(x - y), x that of the last place: kept in logarithms, apart for each sign of g."""
    def part(g: Any) -> Any:
        log_g = where(g > 0, where(g > 0, g, 1).log(), -np.inf)
        return (logcumsumexp_op(log_g - y, axis=axis, reverse=reverse) + x).exp()
    return part(g) - part(-g)


def _log_total(x: Any, axis: int, dtype: Any = None) -> Any:
    return np.logaddexp.accumulate(x, axis, dtype) if x.size else x


def _in_float64(total: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """NumPy's running total, that of float32 kept in float64."""
    return lambda x, axis: total(x, axis, np.float64).astype(x.dtype) if x.dtype == np.float32 else total(x, axis)


cumsum_op: Op = _scan("cumsum", _in_float64(np.cumsum), 0, lambda s, total, x: total + s.cast(x, total.dtype),
                      lambda g, y, x, axis, reverse: (cumsum_op(g, axis=axis, reverse=not reverse),),
                      "The running sum along an axis.", counts=True, operations=1, wide=True)
cumprod_op = _scan("cumprod", _in_float64(np.cumprod), 1, lambda s, total, x: total * s.cast(x, total.dtype),
                   lambda g, y, x, axis, reverse: (cumprod_gradient(g, x, axis=axis, reverse=reverse),),
                   "The running product along an axis.", counts=True, wide=True)
logcumsumexp_op = _scan("logcumsumexp", _in_float64(_log_total), -np.inf,
                        lambda s, total, x: s.call("logaddexp", total, s.cast(x, total.dtype)), _logcumsumexp_vjp,
                        "The running log(sum(exp(x))) along an axis.", promote=floating, kinds="f", exact=False,
                        wide=True)


def _running_extreme(name: str, extreme: Any, doc: str) -> Op:
    def rule(x: TensorType, *, axis: int) -> tuple[TensorType, TensorType]:
        check_kind(name, x.dtype, "buif")
        return x, x.with_dtype(int64)

    def ref(x: Any, axis: int) -> tuple[Any, Any]:
        best = extreme.accumulate(x, axis) if x.size else x
        places = np.arange(x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        hit = (x == best) | (np.isnan(x) if x.dtype.kind == "f" else False)
        return best, np.maximum.accumulate(np.where(hit, places, 0), axis) if x.size else np.zeros(x.shape, np.int64)

    def vjp(g: Any, y: Any, x: Any, axis: int) -> tuple[Any]:
        """Each place of the result gives its gradient to the element it was taken from."""
        return (scatter_op(zeros_like(x), y[1], g[0], axis=axis, reduce="add"),)

    def fill(s: Any, x: Any, axis: int) -> None:
        def step(state: Any, elements: Any, place: Any) -> Any:
            (element,) = elements
            best = (s.maximum if extreme is np.maximum else s.minimum)(state[0], element)
            return best, s.select(s.eq(element, best) | s.isnan(element), place, state[1])
        s.scan((x,), axis, False, [s.least(x.dtype) if extreme is np.maximum else s.most(x.dtype), 0], step)
    return define(name, public=False, type=rule, ref=ref, vjp=vjp, fill=fill, doc=doc, axis_rule=beside_axis(2),
                  batch="axis", exact=True, canonical=lambda x, axis: {"axis": normalize_axis(axis, x.ndim)},
                  examples=[f"{name}(f32[2, 3], axis=1) -> f32[2, 3], i64[2, 3]"])


cummax_op = _running_extreme("cummax", np.maximum, "The running maximum along an axis, and where it was last reached.")
cummin_op = _running_extreme("cummin", np.minimum, "The running minimum along an axis, and where it was last reached.")


# ---------------------------------------------------------------- the lenient surface

def _along(op: Op, x: Any, axis: int | None, dtype: Any) -> Any:
    x = lift(x)
    wanted: DType = as_dtype(dtype) if dtype is not None else sum_dtype(x.dtype)
    x = x if x.dtype is wanted else cast(x, dtype=wanted)
    return op(ravel(x), axis=0) if axis is None else op(x, axis=axis)


@function
def cumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """The running sum along an axis, or of the flattened tensor; integers are summed in 64 bits.

    >>> tn.tensor([1, 2, 3]).cumsum(0)
    tensor([1, 3, 6])
    """
    return _along(cumsum_op, x, axis, dtype)


@function
def cumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """The running product along an axis, or of the flattened tensor; integers are multiplied in 64 bits."""
    return _along(cumprod_op, x, axis, dtype)


def _cumulative(op: Op, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    x = lift(x)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{op.name}: axis= is needed for {x.type}")
    at = normalize_axis(axis or 0, x.ndim)
    out = _along(op, x, at, dtype)
    return concat([_edge(lift(first), out, at), out], axis=at) if include_initial else out


def _edge(value: Any, x: Any, axis: int) -> Any:
    """A scalar as one more place along an axis of `x`; anything else as it is."""
    return value if value.ndim else full_op(cast(value, dtype=x.dtype), shape=(*x.shape[:axis], 1, *x.shape[axis + 1:]))


@function
def cumulative_sum(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running sum along an axis; `include_initial` puts a 0 before it."""
    return _cumulative(cumsum_op, 0, x, axis, dtype, include_initial)


@function
def cumulative_prod(x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The running product along an axis; `include_initial` puts a 1 before it."""
    return _cumulative(cumprod_op, 1, x, axis, dtype, include_initial)


@function
def logcumsumexp(x: Any, axis: int) -> Any:
    """The running log(sum(exp(x))) along an axis."""
    return logcumsumexp_op(x, axis=axis)


@function
def cummax(x: Any, axis: int, return_indices: bool = False) -> Any | tuple[Any, Any]:
    """The running maximum along an axis; with `return_indices`, also where it was last reached."""
    found = cummax_op(x, axis=axis)
    return found if return_indices else found[0]


@function
def cummin(x: Any, axis: int, return_indices: bool = False) -> Any | tuple[Any, Any]:
    """The running minimum along an axis; with `return_indices`, also where it was last reached."""
    found = cummin_op(x, axis=axis)
    return found if return_indices else found[0]


@function
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, n times over; `prepend` and `append` are joined on first.

    >>> tn.diff(tn.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    if n < 0:
        raise ArgumentError(f"diff: n must not be negative, got {n}")
    ends = [None if e is None else _edge(lift(e), x, axis) for e in (prepend, append)]
    parts = [p for p in (ends[0], x, ends[1]) if p is not None]
    x = concat(parts, axis=axis) if len(parts) > 1 else x
    for _ in range(n):
        size = x.shape[axis]
        if isinstance(size, int) and size == 0:
            break
        later, earlier = narrow(x, axis, 1, size), narrow(x, axis, 0, size - 1)
        x = later ^ earlier if x.dtype.kind == "b" else later - earlier
    return x


@function
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral of y along an axis by the trapezoid rule, over the points x or at distances dx.

    >>> tn.trapezoid(tn.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    return areas(lift(y), x, dx, axis).sum(axis=axis)


def areas(y: Any, x: Any, dx: float, axis: int) -> Any:
    """The area under y between each point of an axis and the next, by the trapezoid rule."""
    axis = normalize_axis(axis, y.ndim)
    size = y.shape[axis]
    step = dx
    if x is not None:
        x = lift(x)
        step = diff(x, axis=axis if x.ndim > 1 else 0)
        step = step if x.ndim > 1 else reshaped(step, [-1 if k == axis else 1 for k in range(y.ndim)])
    return (narrow(y, axis, 1, size) + narrow(y, axis, 0, size - 1)) * step / 2.0


@function
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers N - 1, ... 1, 0 of the elements of x along a new last axis; 0, 1, ... when `increasing`.

    >>> tn.vander(tn.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    x = lift(x)
    if x.ndim != 1:
        raise ShapeError(f"vander: {x.type} has more or less than one axis")
    count = x.shape[0] if N is None else N
    if isinstance(count, int) and count < 0:
        raise ArgumentError(f"vander: {count} powers")
    x = cast(x, dtype=int64) if x.dtype.kind == "b" else x
    if isinstance(count, int) and count < 2:
        return full_op(np.ones((), x.dtype.numpy), shape=(x.shape[0], count))
    first = full_op(np.ones((), x.dtype.numpy), shape=(x.shape[0], 1))
    rest = broadcast_to(expand_dims(x, 1), (x.shape[0], count - 1))
    return cumprod_op(concat([first, rest] if increasing else [rest, first], axis=1), axis=1, reverse=not increasing)
