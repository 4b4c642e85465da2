"""What the Array API standard asks of a namespace beside its operators: types, promotion, constants, inspection.

    xp = x.__array_namespace__()        is tenon itself
    xp.result_type(xp.int8, xp.float32) is xp.float32
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from tenon.devices import HOST, check_device, devices, placing
from tenon.errors import ArgumentError, DTypeError
from tenon.graph.promotion import common
from tenon.types import (
    DEFAULT_OF_KIND,
    DTYPES,
    DType,
    as_dtype,
    bfloat16,
    complex_of,
    promote_types,
    real_of,
)

VERSION = "2025.12"
pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None

KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
         "complex floating": "c", "numeric": "iufc"}


class finfo:
    """The limits of a floating (or complex) type.

    >>> tn.finfo(tn.float32).max
    3.4028234663852886e+38
    """

    def __init__(self, type: Any, /) -> None:
        self.dtype: DType = real_of(dtype_of(type))
        if self.dtype.kind != "f":
            raise DTypeError(f"finfo: {self.dtype.name} is no floating type", hint="tn.iinfo is for integers")
        finder: Any = ml_dtypes.finfo if self.dtype is bfloat16 else np.finfo
        limits = finder(self.dtype.numpy)
        self.bits = self.dtype.bits
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.smallest_normal = self.tiny = float(limits.smallest_normal)
        self.resolution = float(limits.resolution)

    def __repr__(self) -> str:
        return f"finfo(dtype={self.dtype.name}, min={self.min}, max={self.max}, eps={self.eps})"


class iinfo:
    """The limits of an integer type.

    >>> tn.iinfo(tn.int8).min
    -128
    """

    def __init__(self, type: Any, /) -> None:
        self.dtype: DType = dtype_of(type)
        if self.dtype.kind not in "iu":
            raise DTypeError(f"iinfo: {self.dtype.name} is no integer type", hint="tn.finfo is for floating types")
        limits = np.iinfo(self.dtype.numpy)
        self.bits, self.max, self.min = self.dtype.bits, int(limits.max), int(limits.min)

    def __repr__(self) -> str:
        return f"iinfo(dtype={self.dtype.name}, min={self.min}, max={self.max})"


def dtype_of(x: Any) -> DType:
    """The element type of a tensor, or the one that `x` names."""
    return x.dtype if hasattr(x, "shape") and hasattr(x, "dtype") else as_dtype(x)


def result_type(*arguments: Any) -> DType:
    """The element type that these tensors, types and Python scalars combine to; scalars only raise the kind.

    >>> tn.result_type(tn.float32, 1.0, tn.int8)
    tenon.float32
    """
    if not arguments:
        raise ArgumentError("result_type: no tensors or types were given")
    return common(tuple(map(_kind_of, arguments)))


def _kind_of(x: Any) -> Any:
    """The kind of a Python scalar, which a graph may compute, or an element type."""
    weak = type(x) if isinstance(x, (bool, int, float, complex)) else getattr(x, "weak", None)
    return weak or as_dtype(dtype_of(x))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion ever turns the first type (or tensor's type) into the second."""
    source, target = as_dtype(dtype_of(from_)), as_dtype(to)
    try:
        return promote_types(source, target) is target
    except DTypeError:
        return False


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of this kind: a type, "bool", "integral", "real floating" and so on, or a tuple of them.

    >>> tn.isdtype(tn.int8, "integral"), tn.isdtype(tn.float32, (tn.float32, "bool"))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ArgumentError(f"isdtype: {kind!r} is no kind of types", hint="one of " + ", ".join(KINDS))
        return as_dtype(dtype).kind in KINDS[kind]
    return as_dtype(dtype) is as_dtype(kind)


class NamespaceInfo:
    """What this namespace offers: devices, types and their defaults, optional behaviour."""

    def capabilities(self) -> dict[str, Any]:
        """Optional behaviour of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Where tensors live unless said otherwise."""
        return placing() or HOST

    def devices(self) -> tuple[str, ...]:
        """Every device on which tensors lie."""
        return devices()[:-1]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types that numbers get where none is given."""
        check_device(device)
        return {"real floating": DEFAULT_OF_KIND["f"], "complex floating": complex_of(DEFAULT_OF_KIND["f"]),
                "integral": DEFAULT_OF_KIND["i"], "indexing": DEFAULT_OF_KIND["i"]}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's types of a kind, by name."""
        check_device(device)
        standard = [d for d in DTYPES if d.name not in ("float16", "bfloat16")]
        return {d.name: d for d in standard if kind is None or isdtype(d, kind)}


def namespace_info() -> NamespaceInfo:
    """What this namespace offers; the standard's `__array_namespace_info__`."""
    return NamespaceInfo()
