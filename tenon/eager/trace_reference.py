"""The reference of an operator, called on arrays of which only types are known -> the NumPy calls that it makes.

    steps_of(lambda x: 1 / np.sqrt(x), [f32[3]], {})    # value 1: np.sqrt(value 0); value 2: np.divide(1, value 1)

What a reference asks of an array must follow from its shape and element type, so that the steps are those of every call
with inputs of these types.  Where it asks for elements or for strides, or calls what is not known here, there are none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tenon.ops.reduction import reduced_shape
from tenon.records import dataclass
from tenon.types import TensorType, as_dtype

Array = np.ndarray
NUMBERS = int, float, complex           # which take the element type of what they meet
KEYS = int, slice, type(None), type(Ellipsis)
ASKED = frozenset((np.iscomplexobj, np.ndim, np.shape, np.size))     # functions that look at types alone


@dataclass(frozen=True, eq=False)
class ReferenceStep:
    """A call of NumPy's: on values, which are counted, and constants; and what stands behind them, with its names."""

    function: Callable[..., Any]
    given: tuple[int | Array, ...]
    behind: tuple[tuple[str, Any], ...]
    type: TensorType


@dataclass(frozen=True, eq=False)
class ReferenceSteps:
    """The calls in a row.  Values are the inputs, and then what each call gives; one of them is the result."""

    rows: tuple[ReferenceStep, ...]
    result: int
    type: TensorType                    # of the result

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result on arrays of the types that the steps are for."""
        values = list(arrays)
        for row in self.rows:
            given = [values[x] if isinstance(x, int) else x for x in row.given]
            given += [x for name, x in row.behind if not name]
            values.append(row.function(*given, **{name: x for name, x in row.behind if name}))
        return values[self.result]


def steps_of(ref: Callable[..., Any], types: Sequence[TensorType | None],
             attrs: Mapping[str, Any]) -> ReferenceSteps | None:
    """The steps of a reference; None where it does more than call what is known here."""
    writer = _TraceWriter(len(types))
    inputs = [None if type is None else Unknown(writer, k, _like(type.shape, type.dtype.numpy))
              for k, type in enumerate(types)]
    try:
        out = ref(*inputs, **attrs)
    except Exception:           # whatever it is: the reference itself is called then
        return None
    return ReferenceSteps(tuple(writer.rows), out.place,
                          out.type) if type(out) is Unknown and not writer.failed else None


class CannotRecord(Exception):
    """The reference asks for what types do not tell."""


class _TraceWriter:
    """The steps so far."""

    def __init__(self, inputs: int):
        self.rows: list[ReferenceStep] = []
        self.inputs, self.failed = inputs, False

    def add(self, function: Callable[..., Any], given: Sequence[Any], behind: Mapping[str, Any] | Sequence[Any],
            like: Array) -> Unknown:
        """One step more, whose result is like this array."""
        named = behind.items() if isinstance(behind, Mapping) else [("", x) for x in behind]
        out = Unknown(self, self.inputs + len(self.rows), like)
        places = tuple([x.place if type(x) is Unknown else x for x in given])
        self.rows.append(ReferenceStep(function, places, tuple(named), out.type))
        return out

    def fail(self, *asked: Any, **more: Any) -> Any:
        """Remember that something was asked for, since a reference may go on after an error."""
        self.failed = True
        raise CannotRecord


def _like(shape: Any, dtype: Any) -> Array:
    """An array of a type, without memory of its size."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class Unknown(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of which only the type is known."""

    __slots__ = ("like", "place", "type", "writer")

    def __init__(self, writer: _TraceWriter, place: int, like: Array):
        self.writer, self.place, self.like = writer, place, like
        self.type = TensorType(as_dtype(like.dtype), like.shape)

    shape = property(lambda self: self.like.shape)
    ndim = property(lambda self: self.like.ndim)
    size = property(lambda self: self.like.size)
    dtype = property(lambda self: self.like.dtype)

    def reshape(self, *shape: Any) -> Unknown:
        """The same elements in another shape."""
        return self._moved(Array.reshape, shape)

    def transpose(self, *axes: Any) -> Unknown:
        """The same elements with the axes in another order."""
        return self._moved(Array.transpose, axes)

    def astype(self, dtype: Any, copy: bool = True) -> Unknown:
        """The elements as those of another type."""
        return self.writer.add(Array.astype, [self], {"dtype": dtype, "copy": copy}, _like(self.shape, dtype))

    def __getitem__(self, key: Any) -> Unknown:
        parts = key if type(key) is tuple else (key,)
        return self._moved(operator.getitem, (key,)) if all(type(x) in KEYS for x in parts) else self.writer.fail()

    def _moved(self, function: Callable[..., Any], behind: tuple[Any, ...]) -> Unknown:
        return self.writer.add(function, [self], behind, np.asarray(function(self.like, *behind)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Unknown:
        if method == "__call__" and not named and ufunc.nout == 1 and ufunc.signature is None:
            return self._elementwise(ufunc, inputs)
        return self._reduced(ufunc, **named) if method == "reduce" else self.writer.fail()

    def _elementwise(self, ufunc: np.ufunc, inputs: Sequence[Any]) -> Unknown:
        """A ufunc's call: numbers of Python's are of the type that NumPy gives them."""
        known = [x if type(x) is Unknown or type(x) in NUMBERS else np.asarray(x) for x in inputs]
        kinds = [type(x) if type(x) in NUMBERS else x.dtype for x in known]
        *taken, made = ufunc.resolve_dtypes((*kinds, None))
        given = [np.asarray(x, dtype) if type(x) in NUMBERS else x for x, dtype in zip(known, taken, strict=True)]
        return self.writer.add(ufunc, given, (), _like(np.broadcast_shapes(*[x.shape for x in given]), made))

    def _reduced(self, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None, keepdims: bool = False, **first: Any
                 ) -> Unknown:
        """A ufunc's `reduce`; the type it adds up in, and what it starts with, may be given."""
        if not first.keys() <= {"initial"}:
            self.writer.fail()
        axes = normalize_axis_tuple(range(self.ndim) if axis is None else axis, self.ndim)
        made = dtype or ufunc.resolve_dtypes((None, self.dtype, None), reduction=True)[-1]
        return self.writer.add(ufunc.reduce, [self], (axis, dtype, None, keepdims, *first.values()),
                               _like(reduced_shape(self.shape, axes, keepdims), made))

    def __array_function__(self, function: Any, types: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if function in ASKED and not named and len(given) == 1:
            return function(self.like)
        if function is not np.where or named or len(given) != 3:
            return self.writer.fail()
        dtype = np.result_type(*[x.dtype if type(x) is Unknown else x for x in given[1:]])
        known = [x if type(x) is Unknown else np.asarray(x, dtype if type(x) in NUMBERS else None) for x in given]
        return self.writer.add(np.where, known, (), _like(np.broadcast_shapes(*[x.shape for x in known]), dtype))

    def __getattr__(self, name: str) -> Any:
        return self.writer.fail()

    def _elements(self, *asked: Any, **more: Any) -> Any:
        """What cannot be said.  `x ** 2` is not a call of `np.power` in NumPy."""
        return self.writer.fail()

    __array__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = __len__ = __iter__ = __contains__ = _elements
    __pow__ = __rpow__ = __ipow__ = __matmul__ = __rmatmul__ = _elements
