"""Products of vectors, matrices and tensors, made of permute, reshape, matmul and sum: dot, tensordot, addmm ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.dims.symbolic_dim import product
from tenon.errors import DTypeError, ShapeError
from tenon.ops.arithmetic import multiply
from tenon.ops.complex_parts import conj
from tenon.ops.creation import eye
from tenon.ops.define import function, lift
from tenon.ops.diagonal import tril
from tenon.ops.index_helpers import triu_indices
from tenon.ops.indexing import take
from tenon.ops.joining_and_axes import expand_dims, flatten, moveaxis
from tenon.ops.matrix_products import matmul, matmul_op, mT
from tenon.ops.reduction import sum_, vector_norm
from tenon.ops.repeating import roll
from tenon.ops.shape import broadcast_to, cast, permute, reshape_op
from tenon.types import broadcast_shapes, float32, normalize_axes, normalize_axis

# ---------------------------------------------------------------- vectors


@function
def dot(x: Any, y: Any) -> Any:
    """The product over the last axis of x and the last but one (or only one) of y; with a scalar, the plain product.

    >>> tn.dot(tn.tensor([1, 2]), tn.tensor([3, 4]))
    tensor(11)
    """
    x, y = lift(x), lift(y)
    if not x.ndim or not y.ndim:
        return multiply(x, y)
    return tensordot(x, y, axes=((x.ndim - 1,), (max(y.ndim - 2, 0),)))


@function
def vdot(x: Any, y: Any) -> Any:
    """The sum of conj(x) * y over all elements."""
    return dot(flatten(conj(x)), flatten(y))


@function
def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    """The sum of conj(x) * y along an axis; the other axes broadcast."""
    x, y = lift(x), lift(y)
    at = [normalize_axis(axis, t.ndim) - t.ndim for t in (x, y)]
    if at[0] != at[1] or x.shape[at[0]] != y.shape[at[1]]:
        raise ShapeError(f"vecdot: axis {axis} of {x.type} and {y.type} differ in size or place")
    return sum_(conj(x) * y, axis=at[0], dtype=None if x.dtype.kind in "fc" or y.dtype.kind in "fc" else (x * y).dtype)


@function
def inner(x: Any, y: Any) -> Any:
    """The product over the last axes; with a scalar, the plain product."""
    x, y = lift(x), lift(y)
    return tensordot(x, y, axes=((x.ndim - 1,), (y.ndim - 1,))) if x.ndim and y.ndim else multiply(x, y)


@function
def outer(x: Any, y: Any) -> Any:
    """Every element of x times every element of y, a row each.

    >>> tn.outer(tn.tensor([1, 2]), tn.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    return multiply(reshape_op(lift(x), shape=(-1, 1)), reshape_op(lift(y), shape=(1, -1)))


@function
def cross(x: Any, y: Any, axis: int = -1) -> Any:
    """The cross product of vectors of three elements along an axis.

    >>> tn.cross(tn.tensor([1, 0, 0]), tn.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    x, y = lift(x), lift(y)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ShapeError(f"cross: axis {axis} of {x.type} and {y.type} must have 3 elements")
    return roll(x, -1, axis) * roll(y, -2, axis) - roll(x, -2, axis) * roll(y, -1, axis)


@function
def cdist(x: Any, y: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """The distances between rows of x [..., n, d] and rows of y [..., m, d], in the p-norm.

    `compute_mode` means nothing: differences are taken first, which loses no digits.
    """
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"cdist: {lift(x).type} and {lift(y).type} are not rows of one length")
    return vector_norm(expand_dims(x, -2) - expand_dims(y, -3), ord=p, axis=-1)


@function
def pdist(x: Any, p: float = 2.0) -> Any:
    """The distances between all pairs of rows of a matrix, in the p-norm, each pair once.

    >>> tn.pdist(tn.tensor([[0.0], [1.0], [3.0]]))
    tensor([1., 3., 2.])
    """
    if x.ndim != 2 or p < 0:
        raise ShapeError(f"pdist: a matrix and p >= 0 were expected, not {lift(x).type} and p={p}")
    first, second = triu_indices(x.shape[0], x.shape[0], 1)
    return vector_norm(take(x, first, axis=0) - take(x, second, axis=0), ord=p, axis=-1)


@function
def householder_product(x: Any, tau: Any) -> Any:
    """The first columns of the product of reflections 1 - tau v v^H, whose v stand below the diagonal of x [..., m, n].

    Their elements on the diagonal are 1, whatever stands there; there may be fewer `tau` [..., k] than columns.
    """
    (m, n), count = x.shape[-2:], tau.shape[-1]
    if tau.ndim != x.ndim - 1 or tau.shape[:-1] != x.shape[:-2] or not m >= n >= count:
        raise ShapeError(f"householder_product: {lift(x).type} and {lift(tau).type} are not [..., m, n] and [..., k] "
                         "with m >= n >= k")
    found = broadcast_to(eye(m, n, dtype=x.dtype), x.shape)
    below = tril(x, -1) + eye(m, n, dtype=x.dtype)
    for k in reversed(range(count)):
        v = below[..., k:k + 1]
        found = found - tau[..., k:k + 1, None] * matmul(v, matmul(adjoint(v), found))
    return found


# ---------------------------------------------------------------- tensors

@function
def tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """The sum of products over these axes: the last n of x with the first n of y, or two lists of axes.

    >>> tn.tensordot(tn.ones((2, 3, 4)), tn.ones((4, 3, 5)), axes=([2, 1], [0, 1])).shape
    (2, 5)
    """
    x, y = lift(x), lift(y)
    if hasattr(axes, "__index__"):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: axes={axes} of {x.type} and {y.type}")
        axes = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    left, right = normalize_axes(axes[0], x.ndim, "axes"), normalize_axes(axes[1], y.ndim, "axes")
    if len(left) != len(right) or any(x.shape[a] != y.shape[b] for a, b in zip(left, right, strict=True)):
        raise ShapeError(f"tensordot: axes {left} of {x.type} and {right} of {y.type} differ in size")
    rows, columns = [k for k in range(x.ndim) if k not in left], [k for k in range(y.ndim) if k not in right]
    a = _matrix(x, (*rows, *left), len(rows))
    b = _matrix(y, (*right, *columns), len(right))
    return reshape_op(matmul_op(a, b), shape=(*(x.shape[k] for k in rows), *(y.shape[k] for k in columns)))


def _matrix(x: Any, order: tuple[int, ...], split: int) -> Any:
    """The axes in this order, the first `split` of them as rows, the others as columns."""
    x = x if order == tuple(range(x.ndim)) else permute(x, axes=order)
    return reshape_op(x, shape=(product(x.shape[:split]), product(x.shape[split:])))


@function
def multi_dot(matrices: Sequence[Any]) -> Any:
    """The product of several matrices, in the order of multiplications that costs least; the ends may be vectors."""
    listed = [lift(m) for m in matrices]
    if len(listed) < 2 or any(m.ndim != 2 for m in listed[1:-1]):
        raise ShapeError("multi_dot: two or more matrices are needed; only the first and the last may be vectors")
    first, last = listed[0].ndim == 1, listed[-1].ndim == 1
    listed[0] = expand_dims(listed[0], 0) if first else listed[0]
    listed[-1] = expand_dims(listed[-1], 1) if last else listed[-1]
    out = _chain(listed)
    return reshape_op(out, shape=out.shape[first:2 - last]) if first or last else out


def _chain(matrices: list[Any]) -> Any:
    count = len(matrices)
    sizes: list[Any] = [matrices[0].shape[0], *(m.shape[1] for m in matrices)]
    cost: dict[tuple[int, int], Any] = {(k, k): 0 for k in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i, j], split[i, j] = min(options, key=lambda option: option[0]) if all(
                isinstance(option[0], int) for option in options) else options[0]

    def build(i: int, j: int) -> Any:
        return matrices[i] if i == j else matmul(build(i, split[i, j]), build(split[i, j] + 1, j))
    return build(0, count - 1)


def square(name: str, x: Any) -> Any:
    """`x` as a stack of square matrices; raises ShapeError where it is none."""
    x = lift(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: {x.type} is no square matrix, nor a stack of them")
    return x


# ---------------------------------------------------------------- products of a stated rank, and sums with them

def _stated(name: str, ranks: tuple[int, int], doc: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        x, y = lift(x), lift(y)
        if (x.ndim, y.ndim) != ranks:
            raise ShapeError(f"{name}: tensors of {ranks[0]} and {ranks[1]} axes are needed, not {x.type} and {y.type}",
                             hint="tn.matmul takes any rank")
        return matmul(x, y)
    fn.__name__, fn.__doc__ = name, doc
    function(fn)


_stated("mm", (2, 2), "The product of two matrices.")
_stated("bmm", (3, 3), "The products of two stacks of matrices, pair by pair.")
_stated("mv", (2, 1), "The product of a matrix and a vector.")


def _sum_with(name: str, ranks: tuple[int, int], doc: str, combine: Callable[[Any, Any], Any] = matmul,
              narrow: bool = False) -> None:
    def fn(x: Any, y: Any, z: Any, beta: float = 1, alpha: float = 1) -> Any:
        x, y, z = lift(x), lift(y), lift(z)
        if (y.ndim, z.ndim) != ranks:
            raise ShapeError(f"{name}: factors of {ranks[0]} and {ranks[1]} axes are needed, not {y.type} and {z.type}")
        out = combine(y, z)
        if any(isinstance(f, float) for f in (alpha, beta)) and out.dtype.kind not in "fc":
            raise DTypeError(f"{name}: alpha and beta must be integers for elements of type {out.dtype.name}")
        broadcast_shapes(x.shape, out.shape)
        if narrow and x.dtype is float32 and out.dtype.bits == 16 and float32 in (y.dtype, z.dtype):    # by autocast
            x = cast(x, dtype=out.dtype)
        out = out if alpha == 1 else out * alpha
        return out if beta == 0 else out + (x if beta == 1 else x * beta)
    fn.__name__, fn.__doc__ = name, doc
    function(fn)


_sum_with("addmm", (2, 2), "beta * x + alpha * (y @ z) for matrices y and z.", narrow=True)
_sum_with("addmv", (2, 1), "beta * x + alpha * (y @ z) for a matrix y and a vector z.")
_sum_with("baddbmm", (3, 3), "beta * x + alpha * (y @ z) for stacks of matrices.", narrow=True)
_sum_with("addbmm", (3, 3), "beta * x + alpha * (the sum of the products of a stack of pairs).",
          lambda y, z: _matrix_of_stack(y, z), narrow=True)
_sum_with("addr", (1, 1), "beta * x + alpha * outer(y, z) for vectors y and z.", outer)


def _matrix_of_stack(y: Any, z: Any) -> Any:
    """The sum over a stack of products, as one product."""
    if y.shape[0] != z.shape[0] or y.shape[2] != z.shape[1]:
        raise ShapeError(f"addbmm: {y.type} and {z.type} are not stacks of matrices that fit")
    return tensordot(moveaxis(y, 0, 1), z, axes=2)


def adjoint(x: Any) -> Any:
    """The matrices transposed and conjugated."""
    return conj(mT(x))


