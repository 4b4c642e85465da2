"""Linear systems in other forms: of tensors, with a code in the place of an error, of powers of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tenon.dims.symbolic_dim import product
from tenon.errors import ShapeError
from tenon.ops.comparison import equal, where
from tenon.ops.creation import arange, eye
from tenon.ops.define import lift
from tenon.ops.diagonal import diagonal
from tenon.ops.joining_and_axes import expand_dims, moveaxis
from tenon.ops.lu_factors import lu_factor
from tenon.ops.reduction import any_, argmax
from tenon.ops.shape import cast, reshape_op
from tenon.ops.solving import inv, solve
from tenon.ops.vector_products import square
from tenon.types import int32

if TYPE_CHECKING:
    from tenon.tensor import Tensor


class InvExResult(NamedTuple):
    """What `inv_ex` returns."""

    inverse: Tensor
    info: Tensor


class SolveExResult(NamedTuple):
    """What `solve_ex` returns."""

    result: Tensor
    info: Tensor


def inv_ex(x: Any, *, check_errors: bool = False) -> InvExResult:
    """The inverse, and `info`, which says what is singular instead of an error: the place of a pivot that is 0, from 1.

    >>> tn.linalg.inv_ex(tn.tensor([[2.0, 0.0], [0.0, 0.0]])).info
    tensor(2, dtype=int32)
    """
    regular, info = _regular(square("inv_ex", x))
    return InvExResult(inv(x if check_errors else regular), info)


def solve_ex(x: Any, y: Any, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """`solve`, and `info`, which says what is singular instead of an error."""
    regular, info = _regular(square("solve_ex", x))
    return SolveExResult(solve(x if check_errors else regular, y, left=left), info)


def _regular(x: Any) -> tuple[Any, Any]:
    """The matrices, the identity in the place of singular ones, and the place of the first pivot that is 0, else 0."""
    zero = equal(diagonal(lu_factor(x)[0], 0, -2, -1), 0)
    info = where(any_(zero, axis=-1), argmax(zero, axis=-1) + 1, 0)
    at = reshape_op(equal(info, 0), shape=(*info.shape, 1, 1))
    return where(at, x, eye(x.shape[-1], dtype=x.dtype)), cast(info, dtype=int32)


def vander(x: Any, N: int | None = None) -> Any:
    """The powers 0 to N - 1 of the elements of vectors along a last axis; `tn.vander` has the highest first.

    >>> tn.linalg.vander(tn.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    x = lift(x)
    x = x if x.ndim else expand_dims(x, 0)
    return expand_dims(x, -1) ** arange(x.shape[-1] if N is None else N)


def tensorinv(x: Any, ind: int = 2) -> Any:
    """The inverse of x with its first `ind` axes taken as one, and the others as one.

    >>> tn.linalg.tensorinv(tn.eye(6).reshape(6, 2, 3), ind=1).shape
    (2, 3, 6)
    """
    x = lift(x)
    rows, columns = x.shape[:ind], x.shape[ind:]
    if ind <= 0 or product(rows) != product(columns):
        raise ShapeError(f"tensorinv: the first {ind} axes of {x.type} do not have as many elements as the others")
    return reshape_op(inv(reshape_op(x, shape=(product(rows), product(columns)))), shape=(*columns, *rows))


def tensorsolve(x: Any, y: Any, dims: Any = None) -> Any:
    """The solution z of tensordot(x, z, z.ndim) = y; `dims` of x are moved to its end before."""
    x, y = lift(x), lift(y)
    if dims is not None:
        x = moveaxis(x, tuple(dims), tuple(range(x.ndim - len(dims), x.ndim)))
    unknown, count = x.shape[y.ndim:], product(y.shape)
    if product(unknown) != count:
        raise ShapeError(f"tensorsolve: {x.type} and {y.type} do not fit")
    found = solve(reshape_op(x, shape=(count, count)), reshape_op(y, shape=(count,)))
    return reshape_op(found, shape=tuple(unknown))
