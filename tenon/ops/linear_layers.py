"""What a layer does with its weight: linear, bilinear, embedding."""

from __future__ import annotations

from typing import Any

from tenon.errors import ShapeError
from tenon.graph.promotion import same
from tenon.ops.comparison import equal, less, where
from tenon.ops.creation import zeros_like
from tenon.ops.define import composite
from tenon.ops.indexing import put, take
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import cast, permute, reshape_op
from tenon.types import int64


@composite(promote=same, autocast="narrow", method=False, examples=["linear(f32[2, 3], f32[4, 3], f32[4]) -> f32[2, 4]",
                                                       "linear(f32[5, 2, 3], f32[4, 3]) -> f32[5, 2, 4]",
                                                       "linear(f32[3], f32[4, 3], f32[4]) -> f32[4]",
                                                       "linear(f32[2, 3], f32[3, 4]) -> error"])
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias: x is [..., inputs], weight is [outputs, inputs], bias is [outputs].

    >>> tn.linear(tn.tensor([1.0, 2.0]), tn.tensor([[1.0, 1.0]]), tn.tensor([0.5]))
    tensor([3.5])
    """
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        hint = "did you mean weight.T ?" if weight.ndim == 2 and x.ndim and x.shape[-1] == weight.shape[0] else None
        raise ShapeError(f"linear: the last size of x {x.type} must be the last of weight {weight.type}", hint=hint)
    y = matmul(x, permute(weight, axes=(1, 0)))
    return y if bias is None else y + bias


@composite(promote=same, autocast="narrow", method=False, examples=[
    "bilinear(f32[2, 3], f32[2, 4], f32[5, 3, 4], f32[5]) -> f32[2, 5]",
    "bilinear(f32[2, 6, 3], f32[2, 6, 4], f32[5, 3, 4]) -> f32[2, 6, 5]"])
def bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    """sum over i, j of x[i] * weight[o, i, j] * y[j], plus the bias: a bilinear form for every output."""
    if weight.ndim != 3 or (x.shape[-1], y.shape[-1]) != weight.shape[1:] or x.shape[:-1] != y.shape[:-1]:
        raise ShapeError(f"bilinear: {x.type} and {y.type} do not fit the weight {weight.type}",
                         hint="x is [..., I], y is [..., J], weight is [O, I, J]")
    outputs, left, right = weight.shape
    half = matmul(x, reshape_op(permute(weight, axes=(1, 0, 2)), shape=(left, outputs * right)))
    half = reshape_op(half, shape=(*x.shape[:-1], outputs, right))
    out = (half * reshape_op(y, shape=(*y.shape[:-1], 1, right))).sum(axis=-1)
    return out if bias is None else out + bias


def _embedding_vjp(g: Any, y: Any, x: Any, weight: Any, padding_idx: int | None) -> tuple[None, Any]:
    def rows() -> Any:
        if padding_idx is None:
            return g
        place = cast(x, dtype=int64)
        left_out = equal(where(less(place, 0), place + weight.shape[0], place), padding_idx % weight.shape[0])
        return where(reshape_op(left_out, shape=(*x.shape, 1)), 0, g)
    return None, lambda: put(zeros_like(weight), x, rows(), axis=0, reduce="add")


@composite(vjp=_embedding_vjp, domain=((0.0, 2.0), (-2.0, 2.0)), batch="first", method=False, examples=[
    "embedding(i64[2, 4], f32[3, 5], padding_idx=None) -> f32[2, 4, 5]", "embedding(i32, f32[3, 5]) -> f32[5]",
    "embedding(f32[2], f32[3, 5]) -> error"])
def embedding(x: Any, weight: Any, *, padding_idx: int | None = None) -> Any:
    """The rows of `weight` at the indices `x`; the row `padding_idx` gets no gradient.

    Both count from the end where they are negative, as indices do everywhere.

    >>> tn.embedding(tn.tensor([1, 0]), tn.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    return take(weight, x, axis=0)
