"""Python's data (numbers, nested lists, arrays, tensors) -> a NumPy array whose elements a tensor may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon.dlpack import imported
from tenon.eager.errstate import quiet
from tenon.errors import DTypeError, ShapeError
from tenon.ops.joining_and_axes import concat
from tenon.ops.shape import cast
from tenon.runtime.buffer_pool import take
from tenon.tensor_views import TensorViews
from tenon.types import DType, as_dtype, float32, float64

ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__")     # by which data are arrays of some library's


def array_of(data: Any, dtype: DType | None) -> np.ndarray:
    """The array, with the memory of the data where it has some that can be kept; floats of Python are float32.

    >>> array_of([0.5], None).dtype, array_of(np.array([0.5]), None).dtype
    (dtype('float32'), dtype('float64'))
    """
    if isinstance(data, TensorViews):
        data = data._concrete("asarray")
    if isinstance(data, (list, tuple)):
        data = _nested(data)
    try:
        array = as_numpy(data)
    except ValueError as error:
        raise ShapeError(f"the nested lists are ragged: {_ragged(data) or error}") from None
    if array.dtype == object or array.dtype.kind in "USMmO":
        large = next((x for x in array.flat if isinstance(x, int) and not -2 ** 63 <= x < 2 ** 64), None)
        raise DTypeError(f"tensor: the integer {large} does not fit 64 bits" if large is not None else
                         f"tensor: {type(data).__name__} with elements of type {array.dtype} makes no tensor",
                         hint="tensors are made of numbers, of nested lists of numbers, and of arrays")
    if dtype is None and not any(hasattr(data, x) for x in ARRAY_PROTOCOLS):
        dtype = {"f": float32, "c": as_dtype("complex64")}.get(array.dtype.kind)
    array = array if dtype is None or array.dtype == dtype.numpy else _converted(array, dtype)
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    as_dtype(array.dtype)
    return array


def as_numpy(data: Any) -> np.ndarray:
    """`np.asarray`, also of bfloat16 of other libraries, which only DLPack hands on."""
    try:
        return np.asarray(data)
    except TypeError:
        if not hasattr(data, "__dlpack__"):
            raise
        return imported(data, None)


def has_tensors(data: Any) -> bool:
    """Whether a nested list has tensors in it, or numbers that the graph reads."""
    if isinstance(data, (list, tuple)):
        return any(map(has_tensors, data))
    return isinstance(data, TensorViews) or hasattr(type(data), "in_graph")


def tensor_of_list(data: Any, dtype: DType | None) -> Any:
    """The same of such a list, while a function is captured: its elements, without gradients, one behind the other."""
    sample = array_of(_sample(data), dtype)
    parts = [cast(_element(x), dtype=as_dtype(sample.dtype)).reshape((-1,)) for x in _elements(data)]
    return concat(parts, axis=0).reshape(sample.shape)


def _element(x: Any) -> Any:
    if isinstance(x, TensorViews):
        own: Any = x
        return own.detach()
    if hasattr(type(x), "in_graph"):
        return x.in_graph(float64 if isinstance(x, float) else None)
    return np.asarray(x)


def _elements(data: Any) -> Iterator[Any]:
    if isinstance(data, (list, tuple)):
        for x in data:
            yield from _elements(x)
    else:
        yield data


def _sample(data: Any) -> Any:
    """A list of numbers and arrays like these."""
    if isinstance(data, (list, tuple)):
        return [_sample(x) for x in data]
    if isinstance(data, TensorViews):
        return np.zeros(tuple(map(int, data.shape)), data.dtype.numpy)
    return data.value if hasattr(type(data), "in_graph") else data


def _ragged(data: Any, where: str = "") -> str:
    """The first of the lists whose length is not that of the one before it."""
    if not isinstance(data, (list, tuple)):
        return ""
    lengths = [len(x) if isinstance(x, (list, tuple, np.ndarray)) else None for x in data]
    odd = next((k for k, n in enumerate(lengths) if n != lengths[0]), None)
    if odd is None:
        return next(filter(None, (_ragged(x, f"{where}[{k}]") for k, x in enumerate(data))), "")
    said = [f"{where}[{k}] {'is a number' if (n := lengths[k]) is None else f'has length {n}'}" for k in (0, odd)]
    return " and ".join(said)


def _converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The elements in another type, as `cast` converts them: infinite, or the type's end, where they are beyond it."""
    if array.dtype.kind == "c" or (array.dtype.kind == "f" and dtype.kind in "ui"):
        found: np.ndarray = cast.ref(array, dtype=dtype)      # type: ignore[misc]
        return found
    return quiet.run(array.astype, dtype.numpy)


def _nested(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_nested(x) for x in data]
    return data._concrete("tensor()") if isinstance(data, TensorViews) else data


def copied(array: np.ndarray) -> np.ndarray:
    """The same elements, in rows; large ones begin where a line of the cache does, so that no program has to move them.
    """
    new = take(array.shape, array.dtype)
    new[...] = array
    return new
