"""One call of an ATen operator, as a rule of the table sees it: what PyTorch promises of its results.

A rule takes a `AtenCall` and the call's arguments, tensors among them as values of a graph, and returns values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

import tenon as tn
from tenon.ops.creation import as_number
from tenon.records import dataclass
from tenon.types import DType, Shape, TensorType, as_dtype, float64

Rule = Callable[..., Any]

DTYPES: dict[torch.dtype, DType] = {getattr(torch, name): as_dtype(name) for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128")}


class UnmappedOperator(Exception):
    """This call has no form in Tenon's operators; PyTorch is to run it."""


@dataclass(frozen=True)
class AtenCall:
    """The results that PyTorch promises, and the arguments as it knows them."""

    types: Sequence[TensorType | None]
    arguments: Sequence[Any]        # tensors without elements, and numbers
    keywords: Mapping[str, Any]

    @property
    def dtype(self) -> DType:
        """The element type of the (first) result."""
        return self._first.dtype

    @property
    def shape(self) -> Shape:
        """The shape of the (first) result."""
        return self._first.shape

    @property
    def _first(self) -> TensorType:
        if not self.types or self.types[0] is None:
            raise UnmappedOperator("it has no tensor as its result")
        return self.types[0]

    @property
    def common(self) -> DType:
        """The element type in which an elementwise operator compares its arguments."""
        _, dtype = elementwise_dtypes(*self.arguments, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
        return dtype_of(dtype)


def dtype_of(dtype: torch.dtype) -> DType:
    """Tenon's element type; raises Unmapped where there is none."""
    if dtype not in DTYPES:
        raise UnmappedOperator(f"elements of type {dtype}")
    return DTYPES[dtype]


def is_value(x: Any) -> bool:
    """Whether an argument is a tensor."""
    return hasattr(x, "dtype")


def as_type(x: Any, dtype: DType) -> Any:
    """A tensor cast to an element type, or a number that such a type holds; raises Unmapped for complex as real."""
    if is_value(x):
        if x.dtype.kind == "c" and dtype.kind not in "cb":
            raise UnmappedOperator("complex numbers as real ones")
        return x if x.dtype is dtype else tn.cast(x, dtype=dtype)
    if hasattr(x, "terms"):         # a size that is not known yet
        return x
    return {"b": bool, "f": float, "c": complex}.get(dtype.kind, int)(x)


def filled(shape: Shape, value: Any, dtype: DType) -> Any:
    """A tensor of one number."""
    number = as_type(value, dtype)
    if hasattr(number, "terms"):
        return tn.broadcast_to(as_type(as_number(number, float64), dtype), shape=tuple(shape))
    return tn.full(tuple(shape), number, dtype=dtype)


def axis_of(dim: int, ndim: int) -> int:
    """An axis counted from the front; a number has one axis to name, which is none."""
    return dim + ndim if dim < 0 else dim
