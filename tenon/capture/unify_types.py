"""What several runs of a function return -> tensors of one type each, as branches and loops need them.

Numbers become tensors; they are weak, as everywhere: beside a tensor they have its type, whose kind must not be lower.
What is neither tensor
nor number must be the same on all sides, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tenon.capture.pytree import Structure
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.ir import Value
from tenon.graph.op import interpreter
from tenon.graph.promotion import common
from tenon.ops.comparison import not_equal
from tenon.ops.shape import cast
from tenon.tensor import Tensor, asarray
from tenon.tensor_state import Examples
from tenon.types import DType, bool_

NUMBERS = (bool, int, float, complex)


def is_data(x: Any) -> bool:
    """Whether a leaf is a tensor, or can be one."""
    return isinstance(x, (Tensor, np.ndarray, np.generic, *NUMBERS))


def is_number(x: Any) -> bool:
    """Whether a leaf is a Python number, whose type is weak."""
    return isinstance(x, NUMBERS) and not isinstance(x, np.generic)


def lifted(leaves: Sequence[Any]) -> list[Any]:
    """The leaves with arrays as tensors; numbers and others stay."""
    return [interpreter().lift(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in leaves]


def as_tensor(x: Any, dtype: DType | None = None) -> Any:
    """A leaf as a tensor, of this element type; what is no data stays as it is."""
    if not is_data(x):
        return x
    x = x if isinstance(x, Tensor) else asarray(x, dtype=dtype)
    return x if dtype is None or x.dtype is dtype else cast(x, dtype=dtype)


def kind_of(x: Any) -> Any:
    """What promotion sees of a leaf."""
    return x.dtype if isinstance(x, Tensor) else next(kind for kind in NUMBERS if isinstance(x, kind))


def agreed_type(name: str, sides: Sequence[str], leaves: Sequence[Any], label: str) -> DType | None:
    """The element type of a result that different sides return; None where it is no data.

    Raises where they differ in type or shape, or are different objects.
    """
    if not all(map(is_data, leaves)):
        for side, x in zip(sides[1:], leaves[1:], strict=True):
            if is_data(x) or is_data(leaves[0]) or not same(x, leaves[0]):
                raise ArgumentError(f"{name}: {label} is {described(leaves[0])} in {sides[0]} and {described(x)} in "
                                    f"{side}", hint="what is no tensor must be the same on both sides")
        return None
    tensors = [(side, x) for side, x in zip(sides, leaves, strict=True) if isinstance(x, Tensor)]
    for side, x in tensors[1:]:
        if x.dtype is not tensors[0][1].dtype:
            raise DTypeError(f"{name}: {label} is {tensors[0][1].type} in {tensors[0][0]} and {x.type} in {side}",
                             hint="cast one of them with .astype(...)")
    shapes = [(side, x.shape if isinstance(x, Tensor) else ()) for side, x in zip(sides, leaves, strict=True)]
    for side, shape in shapes[1:]:
        if shape != shapes[0][1]:
            raise ShapeError(f"{name}: {label} has the shape {list(shapes[0][1])} in {shapes[0][0]} and {list(shape)} "
                             f"in {side}", hint="broadcast one of them with tn.broadcast_to(...)")
    found = common(tuple(map(kind_of, leaves)))
    if tensors and found is not tensors[0][1].dtype:
        side, x = next((side, x) for side, x in zip(sides, leaves, strict=True) if is_number(x))
        raise DTypeError(f"{name}: {label} is {tensors[0][1].type} in {tensors[0][0]} and {x!r} in {side}",
                         hint="cast the tensor with .astype(...)")
    return found


def same(x: Any, y: Any) -> bool:
    """Whether two leaves that are no data mean the same."""
    return x is y or (type(x) is type(y) and isinstance(x, (str, bytes, range, DType)) and bool(x == y))


def described(x: Any) -> str:
    """A leaf in words."""
    return str(x.type) if isinstance(x, Tensor) else f"{x!r}" if x is None or isinstance(x, (str, *NUMBERS)) else \
        f"a {type(x).__name__}"


def labels(structure: Structure, root: str) -> list[str]:
    """How each leaf of a nest is reached: `result[0]['a']`."""
    return list(_labels(structure, root))


def _labels(structure: Structure, path: str) -> Iterator[str]:
    if structure.kind is None:
        yield path
        return
    for k, child in enumerate(structure.children):
        label = k if structure.is_sequence else structure.labels[k]
        attribute = not (structure.is_sequence or structure.is_mapping)
        yield from _labels(child, f"{path}.{label}" if attribute else f"{path}[{label!r}]")


def condition_of(name: str, pred: Any) -> Any:
    """A condition as a Python bool where it is known, else as a tensor of one bool."""
    if isinstance(pred, (*NUMBERS, np.generic)):
        return bool(pred)
    pred = interpreter().lift(pred)
    if not isinstance(pred, Tensor) or pred.shape != ():
        shown = pred.type if isinstance(pred, Tensor) else type(pred).__name__
        raise ShapeError(f"{name}: the condition must be one truth value, it is {shown}",
                         hint="reduce it with .any() or .all()")
    if is_known(pred):
        return bool(pred)
    return pred if pred.dtype is bool_ else not_equal(pred, 0)


def is_known(x: Tensor) -> bool:
    """Whether the elements of a tensor are at hand."""
    return not isinstance(x.payload, (Value, Examples))


