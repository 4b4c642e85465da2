"""Maximum pooling undone, and maxima of windows of random places: what is made of positions among the sizes."""

from __future__ import annotations

from typing import Any

from tenon.dims import product
from tenon.errors import ShapeError
from tenon.graph.build import literal
from tenon.ops.creation import full_op
from tenon.ops.define import composite, layer_function
from tenon.ops.indexing import gather, scatter_op
from tenon.ops.shape import reshape_op
from tenon.ops.windows import per_axis


@composite(public=False, domain=((-2.0, 2.0), (0, 3)),
           vjp=lambda g, y, x, at, size: (gather(g, at, axis=x.ndim - 1), None),
           examples=["unpool(f32[2, 3, 1], i64[2, 3, 1], size=4) -> f32[2, 3, 4]",
                     "unpool(f32[2, 3], i64[2, 2], size=4) -> error"])
def unpool(x: Any, at: Any, *, size: int) -> Any:
    """Rows of `size` zeros that hold the elements of x [..., n] at the places `at`.

    Overlapping windows found one element several times: each of them takes the gradient of its place, as in PyTorch.
    """
    nothing = full_op(literal(0, x.dtype), shape=(*x.shape[:-1], size))
    return scatter_op(nothing, at, x, axis=x.ndim - 1, reduce="set")


@layer_function
def max_unpool(x: Any, indices: Any, kernel: Any, stride: Any = None, padding: Any = 0, output_size: Any = None,
               count: int | None = None) -> Any:
    """The elements of x [N, C, *sizes] where `indices` say that `max_pool` found them, zeros elsewhere.

    `output_size` is the shape that was pooled, or its sizes, where several have the same result.

    >>> best, at = tn.max_pool(tn.tensor([[[1.0, 5.0, 2.0, 3.0]]]), 2, return_indices=True)
    >>> tn.max_unpool(best, at, 2)
    tensor([[[0., 5., 0., 3.]]])
    """
    count = x.ndim - 2 if count is None else count
    if x.ndim not in (count + 1, count + 2) or x.shape != indices.shape:
        raise ShapeError(f"max_unpool: {x.type} and the indices {indices.type} do not fit over {count} axes of sizes")
    lead, steps = x.ndim - count, per_axis(kernel if stride is None else stride, count, "stride")
    sizes = tuple(output_size)[-count:] if output_size is not None else tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(
            x.shape[lead:], steps, per_axis(padding, count, "padding", 0), per_axis(kernel, count, "kernel")))
    flat = (*x.shape[:lead], product(x.shape[lead:]))
    placed = unpool(reshape_op(x, shape=flat), reshape_op(indices, shape=flat), size=product(sizes))
    return reshape_op(placed, shape=(*x.shape[:lead], *sizes))


def _names(count: int) -> None:
    def max_unpool_nd(x: Any, indices: Any, kernel: Any, stride: Any = None, padding: Any = 0,
                      output_size: Any = None) -> Any:
        return max_unpool(x, indices, kernel, stride, padding, output_size, count)
    max_unpool_nd.__name__ = f"max_unpool{count}d"
    max_unpool_nd.__doc__ = f"`max_unpool` over {count} axes of sizes, with or without a batch axis."
    layer_function(max_unpool_nd)


for _count in (1, 2, 3):
    _names(_count)
