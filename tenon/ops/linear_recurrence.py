"""Linear recurrences along an axis, r[k] = a[k] r[k-1] + b[k], and the products that leave elements out.

A recurrence is closed under differentiation: its gradient is one that runs the other way.  So derivatives of products
of any order follow without a division, which says nothing where two factors are zero.
G. Blelloch, "Prefix sums and their applications", 1990, section 1.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.errors import ShapeError
from tenon.graph.axis_rule import beside_axis
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.complex_parts import conj
from tenon.ops.creation import zeros_like
from tenon.ops.define import check_kind, define
from tenon.ops.shape import permute, reshape_op
from tenon.ops.slice_pad_concat import pad_op, slice_op
from tenon.types import TensorType, normalize_axis


def _type(a: TensorType, b: TensorType, *, axis: int, reverse: bool = False) -> TensorType:
    check_kind("linear_recurrence", a.dtype, "fc")
    if a != b:
        raise ShapeError(f"linear_recurrence: factors {a} and terms {b} are not of one type")
    return a


def _ref(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    out = np.empty_like(b)
    rows, factors, terms = (np.moveaxis(x, axis, 0) for x in (out, a, b))
    state: Any = 0
    for k in range(len(rows))[::-1 if reverse else 1]:
        rows[k] = state = factors[k] * state + terms[k]
    return out


def _vjp(g: Any, y: Any, a: Any, b: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
    of_b = linear_recurrence(before(conj(a), axis, not reverse), g, axis=axis, reverse=not reverse)
    return of_b * conj(before(y, axis, reverse)), of_b


def _fill(s: Any, a: Any, b: Any, axis: int, reverse: bool) -> None:
    s.scan((a, b), axis, reverse, [0], lambda state, elements, place: (elements[0] * state[0] + elements[1],))


linear_recurrence: Op = define(
    "linear_recurrence", public=False, type=_type, ref=_ref, vjp=_vjp, fill=_fill, promote=same, batch="axis",
    axis_rule=beside_axis(),
    canonical=lambda a, b, axis, reverse: {"axis": normalize_axis(axis, a.ndim), "reverse": bool(reverse)},
    doc="r[k] = a[k] r[k-1] + b[k] along an axis, from r = 0 on; `reverse` runs from the last element to the first.",
    examples=["linear_recurrence(f32[2, 3], f32[2, 3], axis=1) -> f32[2, 3]",
              "linear_recurrence(f32[2, 3], f32[2, 3], axis=0, reverse=True) -> f32[2, 3]",
              "linear_recurrence(f32[2, 3], f32[2, 3], axis=2) -> error",
              "linear_recurrence(f32[2, 1], f32[1, 1], axis=0) -> error"])


def before(x: Any, axis: int, reverse: bool, first: float = 0) -> Any:
    """Each place gets the element in front of it, and the first one `first`."""
    size = x.shape[axis]
    if isinstance(size, int) and size == 0:
        return x
    start, stop, low, high = [0] * x.ndim, list(x.shape), [0] * x.ndim, [0] * x.ndim
    start[axis], stop[axis] = (1, size) if reverse else (0, size - 1)
    low[axis], high[axis] = (0, 1) if reverse else (1, 0)
    return pad_op(slice_op(x, start=start, stop=stop, step=[1] * x.ndim), first, low=low, high=high)


def product_before(x: Any, axis: int, reverse: bool) -> Any:
    """The product of the elements in front of each place."""
    return linear_recurrence(before(x, axis, reverse), before(zeros_like(x), axis, reverse, 1), axis=axis,
                             reverse=reverse)


def product_before_vjp(g: Any, y: Any, x: Any, axis: int, reverse: bool) -> Any:
    """The gradient of `product_before`, which gave y."""
    back = not reverse
    return conj(y) * linear_recurrence(before(conj(x), axis, back), before(g, axis, back), axis=axis, reverse=back)


def product_of_others_vjp(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """The gradient of the product over axes of all elements but the one at each place."""
    order = (*(a for a in range(x.ndim) if a not in axis), *axis)
    there = [x.shape[a] for a in order]
    rows = (*there[:x.ndim - len(axis)], product(there[x.ndim - len(axis):]))
    g, x = (reshape_op(permute(t, order), shape=rows) for t in (g, x))
    last = len(rows) - 1
    left, right = (product_before(x, last, reverse) for reverse in (False, True))
    found = product_before_vjp(g * conj(right), left, x, last, False) + \
        product_before_vjp(g * conj(left), right, x, last, True)
    back = [order.index(a) for a in range(len(order))]
    return permute(reshape_op(found, shape=tuple(there)), back)


def cumprod_gradient_vjp(h: Any, g: Any, x: Any, axis: int, reverse: bool) -> tuple[Any, Any]:
    """The gradients, for g and x, of the gradient of a running product: `r * conj(product_before(x))`, in which r is
    the recurrence of g that runs back."""
    back, front = not reverse, product_before(x, axis, reverse)
    following = before(conj(x), axis, back)
    r = linear_recurrence(following, g, axis=axis, reverse=back)
    of_g = linear_recurrence(before(conj(following), axis, reverse), h * front, axis=axis, reverse=reverse)
    of_following = of_g * conj(before(r, axis, back))
    of_x = before(conj(of_following), axis, reverse) + product_before_vjp(conj(h) * r, front, x, axis, reverse)
    return of_g, of_x
