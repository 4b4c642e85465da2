"""Sequences: lists of values."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import OutOfRange
from tenon.onnx.known_values import Known, as_tensor, ints
from tenon.onnx.operator_table import TABLE, OperatorCall, operator


def _place(call: OperatorCall, position: Any, count: int) -> int:
    k = ints(position)[0]
    if not -count <= k < count:
        raise OutOfRange(f"{call.step.label}: position {k} of a sequence of {count}")
    return k % count


@operator("SequenceConstruct", raw=True)
def sequence_construct(call: OperatorCall, *xs: Any) -> Any:
    return list(xs)


@operator("SequenceEmpty", raw=True)
def sequence_empty(call: OperatorCall) -> Any:
    return []


@operator("SequenceAt", raw=True)
def sequence_at(call: OperatorCall, xs: Any, position: Any) -> Any:
    return xs[_place(call, position, len(xs))]


@operator("SequenceInsert", raw=True)
def sequence_insert(call: OperatorCall, xs: Any, x: Any, position: Any = None) -> Any:
    k = len(xs) if position is None else ints(position)[0]
    if not -len(xs) <= k <= len(xs):
        raise OutOfRange(f"{call.step.label}: position {k} of a sequence of {len(xs)}")
    k = k + len(xs) if k < 0 else k
    return [*xs[:k], x, *xs[k:]]


@operator("SequenceErase", raw=True)
def sequence_erase(call: OperatorCall, xs: Any, position: Any = None) -> Any:
    k = len(xs) - 1 if position is None else _place(call, position, len(xs))
    return [*xs[:k], *xs[k + 1:]]


@operator("SequenceLength", raw=True)
def sequence_length(call: OperatorCall, xs: Any) -> Any:
    return np.array(len(xs), np.int64)


@operator("ConcatFromSequence", raw=True)
def concat_from_sequence(call: OperatorCall, xs: Any) -> Any:
    axis = call.need("axis")
    if call.get("new_axis", 0):
        if all(isinstance(x, Known) for x in xs):
            return np.stack([x.array for x in xs], axis)
        return tn.stack([as_tensor(x) for x in xs], axis=axis)
    return TABLE["", "Concat"](call, list(xs))


@operator("SplitToSequence", raw=True)
def split_to_sequence(call: OperatorCall, x: Any, split: Any = None) -> Any:
    """Parts of sizes that are given, of one size, or of one element, whose axis may go."""
    axis = call.get("axis", 0)
    length = (x.array if isinstance(x, Known) else x).shape[axis]
    if split is None:
        sizes = [1] * length
    elif np.ndim(split.array if isinstance(split, Known) else split.numpy()) == 0:
        each = ints(split)[0]
        if each < 1:
            raise OutOfRange(f"{call.step.label}: parts of {each} elements")
        sizes = [min(each, length - k) for k in range(0, length, each)]
    else:
        sizes = ints(split)
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise OutOfRange(f"{call.step.label}: parts of {sizes} of an axis of {length}")
    keep = split is not None or call.get("keepdims", 1)
    found, begin = [], 0
    for size in sizes:
        key = [slice(None)] * (axis % len(_shape(x))) + [slice(begin, begin + size) if keep else begin]
        found.append(Known(x.array[tuple(key)]) if isinstance(x, Known) else x[tuple(key)])
        begin += size
    return found


def _shape(x: Any) -> Any:
    return x.array.shape if isinstance(x, Known) else x.shape
