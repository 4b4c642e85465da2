"""The bits of elements as another type: `x.view(dtype)`, as PyTorch and NumPy have it."""

from __future__ import annotations

from typing import Any

from tenon.dims.symbolic_dim import PinnedSize
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.comparison import bitwise_left_shift, bitwise_or, bitwise_right_shift
from tenon.ops.complex_parts import complex_, imag, real
from tenon.ops.define import define, lift, remembering
from tenon.ops.joining_and_axes import reshape, stack
from tenon.ops.shape import cast
from tenon.types import BY_SHORT, DType, TensorType, as_dtype, bool_


def _bits_type(x: TensorType, *, dtype: DType) -> TensorType:
    if x.dtype.kind not in "uif" or dtype.kind not in "uif" or x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"same_bits: {x.dtype.name} and {dtype.name} are not two kinds of numbers of one width")
    return x.with_dtype(dtype)


# `handles`, so that the reference gets narrow numbers as they are, not as float32.
same_bits: Op = define(
    "same_bits", public=False, type=_bits_type, ref=lambda x, dtype: x.view(dtype.numpy), elementwise=True,
    canonical=lambda x, dtype: {"dtype": as_dtype(dtype)}, promote=same, handles=True, exact=True,
    vjp=lambda g, y, x, dtype: (None,),
    compute=lambda s, i, x, dtype: x(i) if x.dtype is dtype else s.bits(x(i), dtype),
    doc="The bits of each number as one of another type of the same width.",
    examples=["same_bits(f32[2, 3], dtype=i32) -> i32[2, 3]", "same_bits(u16[3], dtype=bf16) -> bf16[3]",
              "same_bits(f32[3], dtype=i64) -> error"])


def _view(x: Any, shape: Any, *more: Any) -> Any:
    """The same elements under another shape, given as sizes or a tuple, or their bits as another element type.

    With a type of another width the last axis has more or fewer elements, the lower bits first.

    >>> tn.tensor([1.0, -2.0]).view(tn.int32)
    tensor([ 1065353216, -1073741824], dtype=int32)
    >>> tn.arange(6).view(2, -1).shape
    (2, 3)
    """
    if more or not names_type(shape):
        return reshape(x, shape, *more)
    if shape in (int, float, complex):
        raise ArgumentError(f"view: {shape.__name__} says no width", hint="x.view(tn.float64)")
    return bits_as(lift(x), as_dtype(shape))


_view.__name__ = "view"
view = remembering(_view)


def names_type(x: Any) -> bool:
    """Whether an argument is an element type, of Tenon's, NumPy's or Python's."""
    return isinstance(x, (DType, type, str)) or (hasattr(x, "itemsize") and hasattr(x, "kind"))


def bits_as(x: Any, dtype: DType) -> Any:
    """The bits of the elements as another type."""
    if x.dtype is dtype:
        return x
    if dtype.itemsize > x.dtype.itemsize:
        _refuse_a_part(x, dtype)
    if x.dtype.kind == "c":
        return bits_as(_flat_pairs(x), dtype)
    if dtype.kind == "c":
        parts = bits_as(x, BY_SHORT[f"f{dtype.bits // 2}"])
        pairs = reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2))
        return complex_(pairs[..., 0], pairs[..., 1])
    if dtype is bool_:
        return bits_as(x, BY_SHORT["u8"]) != 0
    whole = cast(x, dtype=BY_SHORT["u8"]) if x.dtype is bool_ else same_bits(x, dtype=_unsigned(x.dtype))
    return same_bits(_regrouped(whole, dtype), dtype=dtype)


def _flat_pairs(x: Any) -> Any:
    """Complex numbers as real ones, twice as many along the last axis."""
    pairs = stack([real(x), imag(x)], axis=-1)
    return pairs if x.ndim == 0 else reshape(pairs, (*x.shape[:-1], x.shape[-1] * 2))


def _regrouped(words: Any, dtype: DType) -> Any:
    """The bits of unsigned words as unsigned words as wide as another type."""
    target, width = _unsigned(dtype), words.dtype.itemsize * 8
    if target.itemsize == words.dtype.itemsize:
        return words
    if target.itemsize < words.dtype.itemsize:
        step = target.itemsize * 8
        pieces = [cast(bitwise_right_shift(words, k * step), dtype=target) for k in range(width // step)]
        return reshape(stack(pieces, axis=-1), (*words.shape[:-1], words.shape[-1] * len(pieces)))
    count = target.itemsize // words.dtype.itemsize
    pieces = cast(reshape(words, (*words.shape[:-1], words.shape[-1] // count, count)), dtype=target)
    found = pieces[..., 0]
    for k in range(1, count):
        found = bitwise_or(found, bitwise_left_shift(pieces[..., k], k * width))
    return found


def _unsigned(dtype: DType) -> DType:
    return BY_SHORT[f"u{dtype.itemsize * 8}"]


def _refuse_a_part(x: Any, dtype: DType) -> None:
    """Raise where the last axis does not make whole elements of a wider type."""
    count = dtype.itemsize // x.dtype.itemsize
    if x.ndim and not isinstance(x.shape[-1], int):
        raise PinnedSize(x.shape[-1])
    if not x.ndim or x.shape[-1] % count:
        raise ShapeError(f"view: an element of {dtype.name} is {count} of {x.dtype.name}, and the last axis of "
                         f"{x.type} is no multiple of {count}")
