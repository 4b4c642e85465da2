"""Maximum pooling undone, and maxima of windows of random places: what is made of positions among the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.errors import ShapeError
from tenon.graph.build import literal
from tenon.ops.creation import arange, full, full_op
from tenon.ops.define import composite, layer_function, lift
from tenon.ops.indexing import gather, scatter_op, take, take_along_axis
from tenon.ops.joining_and_axes import concat
from tenon.ops.reduction import argmax
from tenon.ops.shape import broadcast_to, reshape_op
from tenon.ops.windows import per_axis
from tenon.types import int64


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


def fractional_windows(x: Any, samples: Any, kernel: Sequence[int], output_size: Sequence[int]) -> tuple[Any, Any]:
    """The maxima of windows of x [N, C, *sizes] at places that `samples` [N, C, axes] shift, and where they stand.

    B. Graham, "Fractional max-pooling", 2014: from one window to the next it is sizes / output_size, rounded.
    """
    count, sizes = len(kernel), x.shape[2:]
    at: Any = 0
    for k, (size, window, out) in enumerate(zip(sizes, kernel, output_size, strict=True)):
        if out < 1 or window + out - 1 > size:
            raise ShapeError(f"fractional_max_pool: {out} windows of {window} do not fit axis {k + 2} of "
                             f"{lift(x).type}")
        u = samples[..., k:k + 1]
        step = (size - window) / max(out - 1, 1)
        moved = ((arange(out - 1, dtype=u.dtype) + u) * step).trunc() - (u * step).trunc()
        starts = concat([moved, full((*u.shape[:-1], 1), size - window, dtype=u.dtype)], axis=-1).astype(int64)
        places = starts[..., None] + arange(window)
        wide = [1] * (2 * count)
        wide[k], wide[count + k] = out, window
        at = at * size + reshape_op(places, shape=(*x.shape[:2], *wide))
    lead = tuple(x.shape[:2])
    flat = reshape_op(at, shape=(*lead, product(output_size), product(kernel)))
    held = reshape_op(x, shape=(*lead, 1, product(sizes)))
    values = take_along_axis(broadcast_to(held, (*lead, product(output_size), product(sizes))), flat, axis=-1)
    best = argmax(values, axis=-1, keepdims=True)
    maxima, found = (reshape_op(take_along_axis(x, best, axis=-1), shape=(*lead, *output_size)) for x in (values, flat))
    return maxima, found


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


def adaptive_maxima(x: Any, wanted: Sequence[int]) -> tuple[Any, Any]:
    """The maxima of windows that divide the last sizes of x evenly, and where they stand among those sizes."""
    count = len(wanted)
    sizes, lead = tuple(map(int, x.shape[x.ndim - count:])), x.shape[:x.ndim - count]
    lines = [_elements(n, m) for n, m in zip(sizes, wanted, strict=True)]
    flat = np.ravel_multi_index(np.meshgrid(*(line.ravel() for line in lines), indexing="ij"), sizes)
    split = flat.reshape([n for line in lines for n in line.shape])
    places = split.transpose(*range(0, 2 * count, 2), *range(1, 2 * count, 2)).reshape(*wanted, -1)
    read = reshape_op(take(reshape_op(x, shape=(*lead, product(sizes))), places.ravel(), axis=x.ndim - count),
                      shape=(*lead, *places.shape))
    won = argmax(read, axis=-1, keepdims=True)
    return tuple(reshape_op(gather(y, won, axis=read.ndim - 1), shape=(*lead, *wanted))
                 for y in (read, broadcast_to(places, shape=read.shape)))


def _elements(n: int, m: int) -> np.ndarray:
    """The elements of each of m windows over n, all as many: the last ones again where there are fewer."""
    first, past = np.arange(m) * n // m, -(-(np.arange(m) + 1) * n // m)
    return np.minimum(first[:, None] + np.arange((past - first).max()), past[:, None] - 1)
