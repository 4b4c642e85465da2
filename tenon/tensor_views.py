"""The elements of a tensor as Python and NumPy see them: numbers, lists, arrays, text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.buffer_ownership import adopted
from tenon.dlpack import CPU, export
from tenon.errors import ArgumentError, CaptureError, DTypeError, GradientError, ShapeError
from tenon.graph.ir import Value
from tenon.tensor_state import Deferred, Elsewhere, Examples, recorder
from tenon.types import DEFAULT_OF_KIND, int64

if TYPE_CHECKING:
    from tenon.tensor_methods import TensorMethods as Operators  # with a signature for each operator
else:
    from tenon.graph.operators import Operators


PRINT_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 100, "edgeitems": 3, "linewidth": 75},
    "short": {"precision": 2, "threshold": 100, "edgeitems": 2, "linewidth": 75},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 75}}
print_options: dict[str, Any] = {**PRINT_PROFILES["default"], "sci_mode": None}     # what tn.set_printoptions sets


def _numbers_as() -> dict[str, Any]:
    """NumPy's words for how tensors are printed."""
    said = {name: value for name, value in print_options.items() if name != "sci_mode"}
    said["max_line_width"], scientific = said.pop("linewidth"), print_options["sci_mode"]
    if said["threshold"] == float("inf"):
        said["threshold"] = sys.maxsize
    digits = said["precision"]
    if scientific:
        return {**said, "formatter": {"float_kind": lambda x: f"{x:.{digits}e}"}}
    return said if scientific is None else {**said, "suppress_small": True}


class TensorViews(Operators):
    """Base of `Tensor`: what needs its elements, and so cannot be part of a graph."""

    __slots__ = ()

    if TYPE_CHECKING:       # what `Tensor` adds
        @property
        def payload(self) -> Any: ...
        @property
        def type(self) -> Any: ...
        @property
        def size(self) -> Any: ...
        @property
        def ndim(self) -> int: ...
        @property
        def requires_grad(self) -> bool: ...

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array, without a copy; read-only, since tensors have value semantics."""
        return adopted(self._concrete("numpy()"))

    def item(self) -> Any:
        """The one element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item() needs exactly one element, this tensor is {self.type}")
        capture = recorder.get()
        number = None if capture is None else capture.number(self)
        return self._concrete("item()").item() if number is None else number

    def tolist(self) -> Any:
        """The elements as nested Python lists."""
        return self._concrete("tolist()").tolist()

    def _concrete(self, what: str) -> np.ndarray:
        payload = self.payload
        if isinstance(payload, np.ndarray):
            return payload
        if isinstance(payload, Deferred):
            return payload.elements()
        if isinstance(payload, Elsewhere):
            return payload.elements()
        if isinstance(payload, Examples):
            raise payload.needs_value(what)
        capture = recorder.get()
        if capture is None:
            raise CaptureError(f"{what} of a tensor that belongs to a capture that has ended")
        if (known := capture.known(self)) is not None:
            return known
        raise capture.needs_value(self, what)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._concrete("conversion to NumPy")
        if dtype is not None and dtype != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else adopted(array)

    def __buffer__(self, flags: int) -> memoryview:
        """The elements for `memoryview(x)`, read-only; Python asks for them from 3.12 on."""
        elements: Any = self._concrete("the buffer of a tensor")
        return memoryview(elements).toreadonly()

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """The elements as a DLPack capsule, shared where the strides allow it; read-only for those who can be told."""
        if self.requires_grad:
            raise GradientError("DLPack export of a tensor that requires a gradient", hint="x.detach() lets go of it")
        return export(self._concrete("DLPack export"), stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentError(f"the truth of a tensor with shape {list(self.shape)} is ambiguous",
                                hint="use .any() or .all()")
        return bool(self._concrete("a Python condition").item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "bui" or self.ndim:
            raise DTypeError(f"only an integer scalar can be an index, this tensor is {self.type}")
        return int(self.item())

    def __repr__(self) -> str:
        if isinstance(self.payload, Deferred):
            self._concrete("the text of a tensor")
        if isinstance(payload := self.payload, Elsewhere):
            if not payload.is_here:
                return f"tensor(<{self.type} {payload.told}>)"
            payload = payload.elements()
        if not isinstance(payload, np.ndarray):
            capture = recorder.get()
            what = "captured" if capture is None else capture.shown()
            return f"tensor(<{what if isinstance(payload, Value) else 'one of a batch'} {self.type}>)"
        body = np.array2string(payload, separator=", ", prefix="tensor(", **_numbers_as())
        usual = (DEFAULT_OF_KIND[self.dtype.kind], int64)
        notes = [] if self.dtype in usual else [f"dtype={self.dtype.name}"]
        if 0 in self.shape:
            notes.append(f"shape={self.shape}")
        if isinstance(self.payload, Elsewhere):
            notes.append(self.payload.told)
        if self.requires_grad:
            notes.append("requires_grad=True")
        return f"tensor({', '.join([body, *notes])})"

    def __format__(self, spec: str) -> str:
        """The text in an f-string: that of the number which a scalar is, as NumPy's and PyTorch's are."""
        payload = self.payload
        known = isinstance(payload, (np.ndarray, Deferred)) or (isinstance(payload, Elsewhere) and payload.is_here)
        number = self.size == 1 if spec else self.ndim == 0 and known
        return format(self.item(), spec) if number else str(self)
