"""Element types, tensor types, and how they combine: promotion and broadcasting.

Promotion follows the Array API standard; Python scalars are weak; where the standard leaves a pair open (int with
float) the float wins, as in PyTorch and JAX.  Defaults: float32, int64, complex64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NewType

import ml_dtypes
import numpy as np

from tenon.dims.compare_sizes import is_one, same_sizes
from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, AxisError, DTypeError, ShapeError, given
from tenon.locks import cached_property
from tenon.records import dataclass

Shape = tuple[Dim, ...]
Unsigned = NewType("Unsigned", int)      # of an attribute: a whole number of up to 64 bits, none of them a sign


@dataclass(frozen=True, eq=False)
class DType:
    """An element type.  `short` is its name in the text form, `kind` one of b (bool) u i f c t (token) s (stack)."""

    name: str
    short: str
    kind: str
    bits: int
    numpy: np.dtype[Any]

    def __repr__(self) -> str:
        return f"tenon.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name for it, by which NumPy takes it: `np.zeros(3, x.dtype)`, `np.result_type(x.dtype, y.dtype)`."""
        return self.numpy

    @property
    def is_floating(self) -> bool:
        return self.kind == "f"

    is_floating_point = is_floating     # PyTorch's name

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_differentiable(self) -> bool:
        return self.kind in "fc"


def _dtype(name: str, short: str, kind: str, bits: int, like: Any = None) -> DType:
    return DType(name, short, kind, bits, np.dtype(like or name))


bool_ = _dtype("bool", "bool", "b", 8)
int8, int16, int32, int64 = (_dtype(f"int{n}", f"i{n}", "i", n) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_dtype(f"uint{n}", f"u{n}", "u", n) for n in (8, 16, 32, 64))
bfloat16 = _dtype("bfloat16", "bf16", "f", 16, ml_dtypes.bfloat16)
float16, float32, float64 = (_dtype(f"float{n}", f"f{n}", "f", n) for n in (16, 32, 64))
complex64, complex128 = (_dtype(f"complex{n}", f"c{n}", "c", n) for n in (64, 128))
token = _dtype("token", "token", "t", 8, "bool")  # what an effect returns: order, not data
stack = _dtype("stack", "stack", "s", 64, "int64")  # a handle: see tenon.ops.gradient_stacks

DTYPES = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
          complex64, complex128)
BY_SHORT = {dtype.short: dtype for dtype in (*DTYPES, token, stack)}
DTYPE_OF: dict[Any, DType] = {dtype.numpy: dtype for dtype in DTYPES}
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_PYTHON = {bool: bool_, int: int64, float: float32, complex: complex64}
DEFAULT_OF_KIND = {"b": bool_, "i": int64, "u": uint64, "f": float32, "c": complex64}
_SCALAR_KIND = {bool: "b", int: "i", float: "f", complex: "c"}
_RANK = "buifc"
_COMPLEX_OF = {16: complex64, 32: complex64, 64: complex128}
_FLOAT_OF_COMPLEX = {complex64: float32, complex128: float64}


def as_dtype(value: Any) -> DType:
    """The DType that a DType, NumPy dtype, Python type or name stands for.

    >>> as_dtype("f32"), as_dtype(int), as_dtype(np.float64)
    (tenon.float32, tenon.int64, tenon.float64)
    """
    if isinstance(value, np.dtype) and (known := DTYPE_OF.get(value)):
        return known
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _BY_PYTHON:
        return _BY_PYTHON[value]
    if isinstance(value, type) and issubclass(value, int):      # a number of elements, a member of an enum
        return _BY_PYTHON[int]
    if isinstance(value, str) and (found := _BY_NAME.get(value) or BY_SHORT.get(value)):
        return found
    if isinstance(named := getattr(value, "dtype", None), DType) and not hasattr(value, "shape"):
        return named                                            # of PyTorch's `FloatTensor`
    try:
        return DTYPE_OF[np.dtype(value)]
    except (TypeError, KeyError):
        raise DTypeError(f"no such element type: {value!r}", hint="one of " + " ".join(_BY_NAME)) from None


def no_operand(x: Any) -> DTypeError:
    """The error for what no operator takes; of another library's array it says how to convert it."""
    kind = type(x)
    if not hasattr(kind, "__dlpack__") and not hasattr(kind, "__array__"):
        return DTypeError(f"expected a tensor, an array or a number, not {kind.__name__}")
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return DTypeError(f"expected a tensor, an array or a number, not {name}",
                      hint="tn.asarray(x) is a tensor in the same memory, tn.tensor(x) a copy")


def real_of(dtype: DType) -> DType:
    """The type of the absolute value: float32 for complex64, and so on."""
    return _FLOAT_OF_COMPLEX.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts have this type."""
    return dtype if dtype.kind == "c" else _COMPLEX_OF[dtype.bits if dtype.kind == "f" else 32]


def floating_of(dtype: DType) -> DType:
    """The type itself if it can hold fractions, else the default float."""
    return dtype if dtype.kind in "fc" else float32


@cache
def promote_types(left: DType, right: DType) -> DType:
    """The type that two arrays of these types combine to.

    >>> promote_types(int8, uint8), promote_types(int64, float32), promote_types(bfloat16, float16)
    (tenon.int16, tenon.float32, tenon.float32)
    """
    if left is right:
        return left
    if _RANK.index(left.kind) > _RANK.index(right.kind):
        left, right = right, left
    if left.kind == "b" or (left.kind in "ui" and right.kind in "fc"):
        return right
    if left.kind == "u" and right.kind == "i":
        return right if right.bits > left.bits else _signed(2 * left.bits)
    if left.kind == right.kind:
        return float32 if {left, right} == {float16, bfloat16} else max(left, right, key=lambda dtype: dtype.bits)
    return promote_types(complex_of(left), right)


def _signed(bits: int) -> DType:
    if bits > 64:
        raise DTypeError("no integer type holds both uint64 and a signed integer", hint="cast one of them first")
    return BY_SHORT[f"i{bits}"]


def promote_scalar(dtype: DType, scalar: type) -> DType:
    """The type of an array of `dtype` combined with a Python scalar, which only raises the kind."""
    kind = _SCALAR_KIND[scalar] if scalar in _SCALAR_KIND else as_dtype(scalar).kind
    if _RANK.index(kind) <= _RANK.index("i" if dtype.kind == "u" else dtype.kind):
        return dtype
    return complex_of(dtype) if kind == "c" else DEFAULT_OF_KIND[kind]


# What PyTorch calls a tensor of these elements: FloatTensor.
_KIND_NAMES = {float32: "Float", float64: "Double", float16: "Half", bfloat16: "BFloat16", int64: "Long", int32: "Int",
               int16: "Short", int8: "Char", uint8: "Byte", bool_: "Bool", complex64: "ComplexFloat",
               complex128: "ComplexDouble", uint16: "UInt16", uint32: "UInt32", uint64: "UInt64"}
_KINDS = {f"torch.{name}Tensor": dtype for dtype, name in _KIND_NAMES.items()}


def _kind_of(dtype: Any) -> Any:
    return _KINDS.get(dtype, dtype) if isinstance(dtype, str) else as_dtype(dtype)


@dataclass(frozen=True)
class TensorType:
    """An element type and a shape: `f32[B, 784]`; `f32` alone is a scalar."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return given(self._text)

    @cached_property
    def _text(self) -> str:
        return self.dtype.short + (f"[{', '.join(map(str, self.shape))}]" if self.shape else "")

    __repr__ = __str__

    def __call__(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """PyTorch's `x.type(dtype)`: the tensor whose type this is, converted; without one PyTorch's name of the type.

        Raises ArgumentError for a type that is no tensor's.
        """
        tensor = self.__dict__.get("of")
        if tensor is None:
            raise ArgumentError(f"this type, {self}, is no tensor's, so it converts nothing", hint="x.to(dtype)")
        return tensor.to(_kind_of(dtype)) if dtype is not None else f"torch.{_KIND_NAMES[self.dtype]}Tensor"

    def __reduce__(self) -> Any:
        return TensorType, (self.dtype, self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def size(self) -> Dim:
        return product(self.shape)

    def with_shape(self, shape: Sequence[Dim]) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


MAX_ARRAY_BYTES = (1 << 63) - 1  # bytes that NumPy counts in an array, without its empty axes


def has_arrays(type: TensorType) -> bool:
    """Whether NumPy has arrays of these sizes, were there memory: it counts the others where one size is 0."""
    return prod(n for n in type.shape if isinstance(n, int) and n) * type.dtype.itemsize <= MAX_ARRAY_BYTES


TOKEN = TensorType(token, ())
STACK = TensorType(stack, ())


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape:
    """The shape that these shapes broadcast to; raises ShapeError where sizes differ and neither is 1.

    >>> broadcast_shapes((3, 1), (2,))
    (3, 2)
    """
    first = shapes[0] if shapes else ()
    if len(shapes) == 2 and (not shapes[1] or not first):
        return tuple(first or shapes[1])
    if same_sizes(*shapes):
        return tuple(first)
    result: list[Dim] = []
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [shape[-axis] for shape in shapes if len(shape) >= axis]
        wide = [size for size in sizes if not is_one(size)]
        if any(size != wide[0] for size in wide[1:]):
            shown = " and ".join("[" + ", ".join(map(str, shape)) + "]" for shape in shapes)
            raise ShapeError(f"shapes {shown} do not broadcast: sizes {' and '.join(map(str, wide))} "
                             f"differ at axis {-axis}", hint=_broadcast_hint(shapes))
        result.append(wide[0] if wide else 1)
    return tuple(reversed(result))


def _broadcast_hint(shapes: Sequence[Sequence[Dim]]) -> str:
    short, long = sorted(map(tuple, shapes), key=len)[0], sorted(map(tuple, shapes), key=len)[-1]
    if 0 < len(short) < len(long) and short == long[:len(short)]:
        wanted = (*short, *[1] * (len(long) - len(short)))
        return f"to repeat [{', '.join(map(str, short))}] along the last axes, give it the shape {list(wanted)}"
    return "axes are matched from the last one; two sizes fit when they are equal or one of them is 1"


def normalize_axis(axis: Any, ndim: int, what: str = "axis") -> int:
    """`axis` counted from the front; raises ShapeError if it is no axis of an `ndim`-dimensional tensor."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise DTypeError(f"{what} must be an integer, not {axis!r}")
    if getattr(axis, "ndim", 0):
        raise DTypeError(f"{what} must be an integer, not a tensor of {axis.ndim} axes",
                         hint="tensors come before numbers: tn.gather(x, indices, axis=1), x.index_add(indices, rows)")
    index = axis.__index__()
    if not -ndim <= index < ndim:
        raise AxisError(f"{what} {index} is out of range for a tensor of {ndim} dimensions",
                         hint=f"{what} runs from {-ndim} to {ndim - 1}" if ndim else "a scalar has no axes")
    return int(index % ndim)


def normalize_axes(axes: Any, ndim: int, what: str = "axis") -> tuple[int, ...]:
    """Several axes, or None for all of them, counted from the front, in the given order, without repeats."""
    if axes is None:
        return tuple(range(ndim))
    listed = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    normal = tuple(normalize_axis(axis, ndim, what) for axis in listed)
    if len(set(normal)) != len(normal):
        raise ShapeError(f"{what} {axes} names an axis twice")
    return normal
