"""Parts of a tensor at regular places, as PyTorch names them: written back into it, or read by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.errors import ShapeError
from tenon.ops.define import function, lift
from tenon.ops.getitem import setitem
from tenon.ops.indexing import take
from tenon.ops.joining_and_axes import ravel, reshaped
from tenon.types import normalize_axis


@function
def select_scatter(x: Any, values: Any, axis: int, index: int) -> Any:
    """x with one position of an axis replaced by `values`, which have the shape of `x.select(axis, index)`.

    >>> tn.select_scatter(tn.zeros(2, 2), tn.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    return setitem(x, (*(slice(None),) * axis, index), values)


@function
def slice_scatter(x: Any, values: Any, axis: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1) -> Any:
    """x with every `step`-th position of an axis from `start` to before `end` replaced by `values`.

    >>> tn.slice_scatter(tn.zeros(4), tn.ones(2), start=1, end=4, step=2)
    tensor([0., 1., 0., 1.])
    """
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    return setitem(x, (*(slice(None),) * axis, slice(start, end, step)), values)


@function
def as_strided(x: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0) -> Any:
    """The elements of `x` at regular places of its flattened form: `stride[k]` apart along the new axis k.

    Places count in the order of the axes of `x`, whatever it was computed by; a place may be read more than once.

    >>> tn.as_strided(tn.arange(5), (3, 3), (1, 1))
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    x, size, stride = lift(x), tuple(map(int, size)), tuple(map(int, stride))
    if len(size) != len(stride):
        raise ShapeError(f"as_strided: {len(size)} sizes and {len(stride)} strides")
    last = storage_offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if storage_offset < 0 or any(step < 0 for step in stride) or (0 not in size and last >= x.size):
        raise ShapeError(f"as_strided: place {last} is outside the {x.size} elements of {x.type}")
    places = np.full(size, storage_offset, np.int64)
    for axis, step in enumerate(stride):
        places += (np.arange(size[axis]) * step).reshape(-1, *(1,) * (len(size) - axis - 1))
    return reshaped(take(ravel(x), lift(places.reshape(-1)), axis=0), size)
