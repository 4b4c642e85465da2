"""An operator with its attributes, on inputs of known types -> one NumPy call and its arguments, decided once.

    slice(x, start=(1,), stop=(3,), step=(1,))      operator.getitem(x, (slice(1, 3, 1),))

For operators whose reference does more in Python than NumPy does for a small array; the results are the reference's, to
the bit.  Where NumPy raises, the call in full says what is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.graph.op import OPS, Op
from tenon.ops.short_axes import is_short
from tenon.types import bool_

Types = Sequence[Any]
Prepared = tuple[Callable[..., Any], tuple[Any, ...]]       # what is called, and with what behind the arrays


def prepared(op: Op, types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    """The call, or None where the reference is as good."""
    make = PREPARED.get(op)
    return None if make is None else make(types, attrs)


def _total(total: np.ufunc) -> Callable[[Types, Mapping[str, Any]], Prepared | None]:
    def make(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
        same = types[0].dtype is attrs["dtype"] and not is_short(types[0].shape, attrs["axis"])
        return (total.reduce, (attrs["axis"], None, None, attrs["keepdims"])) if same else None
    return make


def _extreme(combine: np.ufunc) -> Callable[[Types, Mapping[str, Any]], Prepared | None]:
    def make(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
        short = is_short(types[0].shape, attrs["axis"])
        return None if short else (combine.reduce, (attrs["axis"], None, None, attrs["keepdims"]))
    return make


def _slices(types: Types, attrs: Mapping[str, Any]) -> Prepared:
    parts = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
    key = tuple([slice(a, b if b >= 0 else None, c) for a, b, c in parts])
    return operator.getitem, (key,)


def _cast(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    source, target = types[0].dtype, attrs["dtype"]
    cut = source.kind == "c" or (source.kind == "f" and target.kind in "ui")       # what lies beyond the type's ends
    return None if cut else (np.ndarray.astype, (target.numpy,))


def _take(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    return (np.ndarray.take, (attrs["axis"],)) if types[1].dtype.kind == "i" else None


def _gather(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    axis, grid = attrs["axis"], np.indices(types[1].shape, sparse=True)
    before, behind = grid[:axis], grid[axis + 1:]
    return (lambda x, at: x[(*before, at, *behind)], ()) if types[1].dtype.kind == "i" else None


PREPARED: dict[Op, Callable[[Types, Mapping[str, Any]], Prepared | None]] = {
    OPS["sum"]: _total(np.add),
    OPS["prod"]: _total(np.multiply),
    OPS["max"]: _extreme(np.maximum),
    OPS["min"]: _extreme(np.minimum),
    OPS["reshape"]: lambda types, attrs: (np.ndarray.reshape, (attrs["shape"],)),
    OPS["permute"]: lambda types, attrs: (np.ndarray.transpose, (attrs["axes"],)),
    OPS["slice"]: _slices,
    OPS["cast"]: _cast,
    OPS["take"]: _take,
    OPS["gather"]: _gather,
    OPS["random_advance"]: lambda types, attrs: (np.add, (np.array([0, 1], np.uint64),)),
}


# ---------------------------------------------------------------- several calls, which are steps of a recipe

Step = Callable[..., int]       # a function, places of what it reads, the type of its result, what it takes behind them
Number = Callable[..., int]     # a number and its element type -> its place
Given = Sequence[int]           # the places of the inputs


def _relu(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    return step(np.maximum, [number(0, type.dtype), *given], type)


def _clip(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    x, low, high = given
    return step(np.minimum, [high, step(np.maximum, [low, x], type)], type)


def _leaky_relu(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    (x,), slope = given, number(attrs["negative_slope"], type.dtype)
    positive = step(np.greater, [x, number(0, type.dtype)], type.with_dtype(bool_))
    return step(np.where, [positive, x, step(np.multiply, [x, slope], type)], type)


def _rsqrt(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    return step(np.divide, [number(1, type.dtype), step(np.sqrt, given, type)], type)


def _sigmoid(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    zero, one = number(0, type.dtype), number(1, type.dtype)
    small = step(np.exp, [step(np.negative, [step(np.absolute, given, type)], type)], type)
    above = step(np.where, [step(np.greater_equal, [*given, zero], type.with_dtype(bool_)), one, small], type)
    return step(np.divide, [above, step(np.add, [one, small], type)], type)


def _softmax(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    (x,), axis = given, attrs["axis"]
    powers = step(np.exp, [step(np.subtract, [x, _reduced(step, np.maximum, x, type, axis, -np.inf)], type)], type)
    return step(np.divide, [powers, _reduced(step, np.add, powers, type, axis)], type)


def _log_softmax(step: Step, number: Number, given: Given, type: Any, attrs: Mapping[str, Any]) -> int:
    (x,), axis = given, attrs["axis"]
    shifted = step(np.subtract, [x, _reduced(step, np.maximum, x, type, axis, -np.inf)], type)
    total = _reduced(step, np.add, step(np.exp, [shifted], type), type, axis)
    return step(np.subtract, [shifted, step(np.log, [total], _kept(type, axis))], type)


def _reduced(step: Step, combine: np.ufunc, x: int, type: Any, axis: int, *first: float) -> int:
    """All elements along an axis combined, which stays."""
    return step(combine.reduce, [x], _kept(type, axis), axis, None, None, True, *first)


def _kept(type: Any, axis: int) -> Any:
    return type.with_shape((*type.shape[:axis], 1, *type.shape[axis + 1:]))


# What a reference does whose first input has the type of its result, as calls that recipes let machine code make where
# that takes less time.
STEPS: dict[Op, Callable[[Step, Number, Given, Any, Mapping[str, Any]], int]] = {
    OPS["relu"]: _relu, OPS["clip"]: _clip, OPS["leaky_relu"]: _leaky_relu, OPS["rsqrt"]: _rsqrt,
    OPS["sigmoid"]: _sigmoid, OPS["softmax"]: _softmax, OPS["log_softmax"]: _log_softmax}
