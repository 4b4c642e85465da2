"""What a layer does with its weight: linear, bilinear, embedding."""

from __future__ import annotations

from typing import Any

from tenon.errors import ShapeError
from tenon.graph.promotion import same
from tenon.ops.define import composite
from tenon.ops.linalg import matmul
from tenon.ops.shape import permute


@composite(promote=same, examples=["linear(f32[2, 3], f32[4, 3], f32[4]) -> f32[2, 4]",
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
