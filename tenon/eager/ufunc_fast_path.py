"""An elementwise operator call on tensors that NumPy does in one step -> its result, with little Python around it.

`op.quick(inputs)` gives the result, by a call in full (`dispatch.py`) where need be: inputs of several element types,
numbers of another type, captured or batched tensors, whatever NumPy refuses.  Only element types decide, so one entry
serves all shapes.  `native_fast_path.py` puts machine code in the place of these functions, which it calls where it
does less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.autocast import autocasting
from tenon.eager.errstate import quiet
from tenon.eager.grad_mode import recording
from tenon.eager.native_fast_path import FastPath, give
from tenon.eager.tape import recorded
from tenon.errors import OF_NUMPY, TenonError
from tenon.graph.build import agree, literal
from tenon.graph.kernels import KERNELS
from tenon.graph.op import OPS, Op, current
from tenon.ops.define import PUBLIC
from tenon.ops.matrix_products import matmul_op
from tenon.runtime.buffer_pool import UNMAPPED_BYTES, filled
from tenon.tensor import Tensor, fresh
from tenon.types import TensorType, as_dtype

NUMBERS = frozenset((bool, int, float))
MAX_NUMBERS = 1024
PRODUCTS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
NOT_ONE = None, np.zeros((), object)        # a number that is none of a tensor's type: no operator takes such elements
SHORTS: list[FastPath] = []


def give_quick_calls() -> None:
    """Give every operator that is one of NumPy's ufuncs its fast path."""
    SHORTS.extend((_unary if op.arity == 1 else _binary)(op, op.ref) for op in OPS.values()
                  if isinstance(op.ref, np.ufunc) and op.elementwise and not op.signature.attrs)
    give(SHORTS, PRODUCT)


def _product(op: Op, full: Callable[[Any, Any], Any]) -> FastPath:
    """`x @ y` of two matrices of one floating type, which NumPy's product is; all else is for `full`."""
    def quick(x: Any, y: Any) -> Any:
        if isinstance(x, Tensor) and isinstance(y, Tensor) and current() is None and not KERNELS:
            left, right = x.own, y.own
            a: Any = left.payload
            b: Any = right.payload
            matrices = type(a) is type(b) is np.ndarray and a.ndim == 2 == b.ndim
            if matrices and a.dtype is b.dtype and a.dtype in PRODUCTS and autocasting() is None:
                try:
                    out = quiet.run(np.matmul, a, b)
                except OF_NUMPY:                # the full call says what is wrong
                    return full(x, y)
                wanted = (left.requires_grad or right.requires_grad) and recording()
                return recorded(op, (x, y), out) if wanted else fresh(out)
        return full(x, y)
    quick.__name__, quick.__doc__ = "__matmul__", full.__doc__
    return FastPath(op, np.matmul, quick, {dtype: dtype for dtype in PRODUCTS})


def _unary(op: Op, ufunc: np.ufunc) -> FastPath:
    results, full = _Results(op), op.full

    def quick(x: Any) -> Any:
        if isinstance(x, Tensor) and current() is None and not KERNELS:
            own = x.own
            a: Any = own.payload
            result = results[a.dtype]
            if result is not None:
                try:
                    out = quiet.run(ufunc, a) if a.nbytes < UNMAPPED_BYTES else quiet.run(filled, ufunc, result, a)
                    if type(out) is not np.ndarray:
                        out = np.asarray(out)
                    if out.dtype is result:
                        return fresh(out) if not (own.requires_grad and recording()) else recorded(op, (x,), out)
                except OF_NUMPY:                # the full call says what is wrong
                    pass
        return full((x,), {})
    quick.__name__, quick.__doc__ = op.name, op.doc
    return FastPath(op, ufunc, quick, results)


def _binary(op: Op, ufunc: np.ufunc) -> FastPath:
    results, numbers, full = _Results(op), _NumbersBeside(op), op.full

    def quick(x: Any, y: Any) -> Any:
        if current() is None and not KERNELS:
            left, right = x, y
            a: Any
            b: Any
            if isinstance(x, Tensor):
                own = x.own
                a, wanted = own.payload, own.requires_grad
                if isinstance(y, Tensor):
                    own = y.own
                    b, wanted = own.payload, wanted or own.requires_grad
                else:
                    right, b = numbers.find(a.dtype, y)
            elif isinstance(y, Tensor):
                own = y.own
                b, wanted = own.payload, own.requires_grad
                left, a = numbers.find(b.dtype, x)
            else:
                return full((x, y), {})
            dtype = a.dtype
            if dtype is b.dtype and (result := results[dtype]) is not None:
                try:
                    large = a.nbytes >= UNMAPPED_BYTES or b.nbytes >= UNMAPPED_BYTES
                    out = quiet.run(filled, ufunc, result, a, b) if large else quiet.run(ufunc, a, b)
                    if type(out) is not np.ndarray:
                        out = np.asarray(out)
                    if out.dtype is result:
                        return recorded(op, (left, right), out) if wanted and recording() else fresh(out)
                except OF_NUMPY:                # the full call says what is wrong
                    pass
        return full((x, y), {})
    quick.__name__, quick.__doc__ = op.name, op.doc
    return FastPath(op, ufunc, quick, results, numbers.find)


PRODUCT = _product(matmul_op, PUBLIC["matmul"])


class _Results(dict[Any, Any]):
    """Element type of all inputs -> that of the result; None where the call is to be made in full."""

    def __init__(self, op: Op):
        super().__init__()
        self.op, self.count = op, len(op.signature.data)

    def __missing__(self, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
        self[dtype] = self._infer(dtype)
        found: np.dtype[Any] | None = self[dtype]
        return found

    def _infer(self, dtype: Any) -> np.dtype[Any] | None:
        if not isinstance(dtype, np.dtype):
            return None             # captured, or one of a batch
        type = TensorType(as_dtype(dtype), ())
        given: Sequence[Any] = (Tensor(np.zeros((), dtype)),) * self.count
        try:
            if dtype.itemsize == 2 or any(wanted is not type.dtype for _, wanted in agree(self.op, tuple(given))):
                return None         # halves are computed in float32; a cast is a call of its own
            inferred = self.op.type(*(type,) * self.count)
        except TenonError:
            return None
        return inferred.dtype.numpy if isinstance(inferred, TensorType) else None


class _NumbersBeside(dict[Any, Any]):
    """(element type of the tensor, kind and value of the number beside it) -> the number as literal and as array."""

    def __init__(self, op: Op):
        super().__init__()
        self.op = op

    def find(self, dtype: Any, number: Any) -> tuple[Any, Any]:
        """The number in the type that the tensor has and keeps; an array of no type where it has none."""
        kind = type(number)
        if kind not in NUMBERS or (kind is float and not number):       # 0.0 == -0.0
            return NOT_ONE
        key = dtype, kind, number
        found: tuple[Any, Any] | None = self.get(key)
        if found is None:
            if len(self) >= MAX_NUMBERS:
                self.clear()
            found = self[key] = self._make(dtype, number)
        return found

    def _make(self, dtype: Any, number: Any) -> tuple[Any, Any]:
        if not isinstance(dtype, np.dtype):
            return NOT_ONE
        known, beside = as_dtype(dtype), Tensor(np.zeros((), dtype))
        try:
            if any(wanted is not known for _, wanted in agree(self.op, (beside, number))):
                return NOT_ONE
            made = literal(number, known)
        except Exception:
            return NOT_ONE
        return made, np.asarray(made.value, dtype)
