"""Tensors made from numbers alone: zeros, ones, full, arange, linspace, eye ...

Eagerly they are tensors; under capture they are nodes, so a size may be symbolic: `tn.zeros((x.shape[0], 3))`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim, SymbolicDim, maximum
from tenon.errors import ArgumentError, DTypeError
from tenon.graph.build import PYTHON_SCALARS
from tenon.ops.comparison import equal, where
from tenon.ops.define import define, function, is_computed, lift, scalar
from tenon.ops.placing import made_on_device
from tenon.ops.shape import as_dim, as_shape, cast, dimension, full_op, reshape_op, size_expression
from tenon.types import DEFAULT_OF_KIND, DType, TensorType, as_dtype, float32, float64, int64


def _arange_compute(s: Any, i: Any, start: Any, step: Any, size: Dim, dtype: DType) -> Any:
    wide = float64 if dtype.is_floating else int64
    return s.cast(size_expression(s, start, wide) + s.cast(i[0], wide) * size_expression(s, step, wide), dtype)


def _arange_type(*, start: Dim | float, step: Dim | float, size: Dim, dtype: DType) -> TensorType:
    if dtype.kind not in "uif" or (dtype.kind in "ui" and float in (type(start), type(step))):
        raise DTypeError(f"arange: elements of type {dtype.name} are not counted from {start} by {step}")
    return TensorType(dtype, (size,))


arange_op = define(
    "arange", public=False, type=_arange_type,
    ref=lambda start, step, size, dtype: (
        start + np.arange(size, dtype=np.float64 if dtype.is_floating else np.int64) * step).astype(dtype.numpy),
    compute=_arange_compute, vjp=lambda g, y, **_: (),
    moves="source", doc="`size` numbers from `start` on, `step` apart.",
    examples=["arange(start=0, step=1, size=5, dtype=i64) -> i64[5]",
              "arange(start=1.0, step=-0.5, size=3, dtype=f32) -> f32[3]"])


def as_number(size: Any, dtype: DType) -> Any:
    """A size as a factor or divisor of a tensor: a Python number where it is known."""
    return float(size) if isinstance(size, (int, float)) else dimension(size=size, dtype=dtype)


def iota(size: Dim, axis: int = 0, ndim: int = 1) -> Any:
    """0, 1, ... size - 1 along `axis` of a tensor whose other `ndim - 1` axes have size 1."""
    size = as_dim(size)
    count = arange_op(start=0, step=1, size=size, dtype=int64)
    return count if ndim == 1 else reshape_op(count, shape=tuple(size if k == axis else 1 for k in range(ndim)))


# ---------------------------------------------------------------- filled with one value

def _shape(sizes: tuple[Any, ...]) -> Any:
    """`(2, 3)`, `((2, 3),)` and `([2, 3],)` are the same shape."""
    return as_shape(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)


def _filled(shape: Any, value: Any, dtype: Any, device: Any = None, requires_grad: bool = False) -> Any:
    wanted = None if dtype is None else as_dtype(dtype)
    if issubclass(type(value), SymbolicDim):
        value = dimension(size=value, dtype=int64)
    if wanted is not None and (isinstance(value, PYTHON_SCALARS) or is_computed(value)):
        value = scalar(value, wanted)
    value = lift(value)
    if value.ndim:
        raise ArgumentError(f"full: the value must be a scalar, not {value.type}",
                            hint="tn.broadcast_to repeats a tensor")
    value = value if wanted is None or value.dtype is wanted else cast(value, dtype=wanted)
    return made_on_device(full_op(value, shape=as_shape(shape)), device, requires_grad)


@function
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of this shape with one value everywhere; the element type is the value's where none is given.

    >>> tn.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    return _filled(shape, fill_value, dtype, device, requires_grad)


@function
def zeros(shape: Any, *more: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Zeros of this shape, given as sizes or as a tuple.

    >>> tn.zeros(2, 3).shape, tn.zeros((2,), dtype=int)
    ((2, 3), tensor([0, 0]))
    """
    return _filled(_shape((shape, *more)), 0, dtype or float32, device, requires_grad)


@function
def ones(shape: Any, *more: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Ones of this shape, given as sizes or as a tuple."""
    return _filled(_shape((shape, *more)), 1, dtype or float32, device, requires_grad)


@function
def empty(shape: Any, *more: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of this shape whose elements are to be overwritten; they are zeros, so that every run is the same."""
    return _filled(_shape((shape, *more)), 0, dtype or float32, device, requires_grad)


@function
def full_like(x: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """One value everywhere, with the shape and (unless given) the element type of x."""
    x = lift(x)
    place = getattr(x, "device", None) if device is None else device
    return _filled(x.shape, fill_value, dtype or _dtype_of(x), place, requires_grad)


def _dtype_of(x: Any) -> DType:
    """The element type of a tensor, or the one that a number of Python gets, which a graph may compute."""
    dtype: DType = x.dtype
    return dtype if getattr(x, "weak", None) is None else DEFAULT_OF_KIND[dtype.kind]


@function
def zeros_like(x: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Zeros with the shape and (unless given) the element type of x."""
    return full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


@function
def ones_like(x: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Ones with the shape and (unless given) the element type of x."""
    return full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


@function
def empty_like(x: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """As `zeros_like`: elements that are to be overwritten."""
    return full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


# ---------------------------------------------------------------- numbers in a row

@function
def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
           requires_grad: bool = False) -> Any:
    """Numbers from start up to (not including) stop, step apart; `arange(n)` counts from 0.

    int64 where all arguments are integers, else float32.  Raises ArgumentError where step is 0.

    >>> tn.arange(5), tn.arange(1, 2, 0.25)
    (tensor([0, 1, 2, 3, 4]), tensor([1.  , 1.25, 1.5 , 1.75]))
    """
    start, stop = (0, start) if stop is None else (start, stop)
    start, stop, step = (_scalar(as_dim(x)) for x in (start, stop, step))
    if not isinstance(step, SymbolicDim) and step == 0:
        raise ArgumentError("arange: step must not be 0")
    whole = not any(isinstance(x, float) for x in (start, stop, step))
    wanted = as_dtype(dtype) if dtype is not None else int64 if whole else float32
    if wanted.kind not in "uif":
        raise DTypeError(f"arange: elements of type {wanted.name} cannot be counted")
    if not whole:
        size: Dim = max(math.ceil((stop - start) / step), 0)
    elif isinstance(step, int) and step < 0:
        size = maximum((start - stop - step - 1) // -step, 0)
    else:
        size = maximum((stop - start + step - 1) // step, 0)
    if wanted.kind in "ui" and not whole:       # as NumPy: the element type cuts the start and the step
        start, step = int(start), int(start + step) - int(start)
    return made_on_device(arange_op(start=start, step=step, size=size, dtype=wanted), device, requires_grad)


def _scalar(x: Any) -> Any:
    """A number or a size; a tensor or array of one element gives its number."""
    if isinstance(x, (int, float, SymbolicDim)):
        return int(x) if isinstance(x, bool) else x
    if not hasattr(x, "item"):
        raise DTypeError(f"arange: expected a number, not {x!r}")
    number = x.item()
    return number.as_size() if hasattr(number, "as_size") and number.dtype.kind == "i" else number


@function
def linspace(start: Any, stop: Any, num: Any = 50, *, endpoint: bool = True, dtype: Any = None,
             device: Any = None, requires_grad: bool = False) -> Any:
    """`num` numbers at equal distances from start to stop, both included unless `endpoint=False`.

    Computed in float64; float32 unless `dtype` is given.  Start and stop may be scalar tensors, and have gradients.

    >>> tn.linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if isinstance(num, float) or not hasattr(num, "__index__"):
        raise ArgumentError(f"linspace: num must be an integer, got {num!r}")
    if isinstance(num, int) and num < 0:
        raise ArgumentError(f"linspace: num must not be negative, got {num}")
    num = as_dim(num)
    steps = maximum(num - 1, int(isinstance(num, SymbolicDim))) if endpoint else num     # one number is the first
    wanted = as_dtype(dtype) if dtype is not None else _linspace_dtype(start, stop)
    wide = as_dtype("c128") if wanted.kind == "c" else float64
    first, last = (scalar(x, wide) if isinstance(x, PYTHON_SCALARS) else cast(lift(x), dtype=wide)
                   for x in (start, stop))
    at = iota(num)
    if isinstance(steps, int) and steps <= 0:
        return made_on_device(cast(first + 0.0 * cast(at, dtype=wide), dtype=wanted), device, requires_grad)
    gap = (last - first) / as_number(steps, float64)
    row = first + cast(at, dtype=wide) * gap
    out = cast(where(equal(at, as_number_int(steps)), last, row) if endpoint else row, dtype=wanted)
    return made_on_device(out, device, requires_grad)


def as_number_int(size: Dim) -> Any:
    """A size to compare integers with."""
    return size if isinstance(size, int) else dimension(size=size, dtype=int64)


def _linspace_dtype(*ends: Any) -> DType:
    if any(isinstance(x, complex) for x in ends):
        return DEFAULT_OF_KIND["c"]
    given = [_dtype_of(lift(x)) for x in ends if not isinstance(x, PYTHON_SCALARS)]
    return next((dtype for dtype in given if dtype.kind in "fc"), float32)


@function
def logspace(start: Any, stop: Any, num: Any = 50, *, endpoint: bool = True, base: float = 10.0,
             dtype: Any = None) -> Any:
    """`base` to the powers `linspace(start, stop, num)`."""
    powers = linspace(start, stop, num, endpoint=endpoint, dtype=float64)
    return cast((powers * math.log(base)).exp() if base != 10.0 else 10.0 ** powers, dtype=dtype or float32)


@function
def eye(n_rows: Any, n_cols: Any = None, *, k: int = 0, dtype: Any = None, device: Any = None,
        requires_grad: bool = False) -> Any:
    """Ones on the k-th diagonal (above the main one where k > 0), zeros elsewhere.

    >>> tn.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    n_cols = n_rows if n_cols is None else n_cols
    hit = equal(iota(n_rows, 0, 2) + k, iota(n_cols, 1, 2))
    return made_on_device(cast(hit, dtype=dtype or float32), device, requires_grad)


@function
def tri(n: Any, m: Any = None, k: int = 0, *, dtype: Any = float32) -> Any:
    """Ones at and below the k-th diagonal, zeros above."""
    return cast(lower(n, n if m is None else m, k), dtype=dtype)


def lower(rows: Dim, columns: Dim, k: int = 0) -> Any:
    """True at and below the k-th diagonal."""
    return iota(columns, 1, 2) <= iota(rows, 0, 2) + k
