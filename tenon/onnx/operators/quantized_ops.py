"""Quantised numbers: scales and zero points, and integer arithmetic between them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import REGULAR, Known, as_tensor, host, is_known, known_where_possible
from tenon.onnx.onnx_package import onnx
from tenon.onnx.operator_table import OperatorCall, operator
from tenon.onnx.operators.cast_ops import cast_array, numpy_type
from tenon.onnx.operators.convolution_ops import along_channels, integer_convolution, shifted

# The range of an integer type that a number is rounded into; types of 4 and 2 bits are stored in bytes.
RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767), "uint4": (0, 15),
          "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1), "int32": (-2 ** 31, 2 ** 31 - 1)}


def _spread(call: OperatorCall, scale: Any, x: Any) -> Any:
    """A scale, or one for each place of an axis, or one a block of it, as something that broadcasts with x."""
    axis, block = call.get("axis", 1), call.get("block_size", 0)
    if scale.ndim == 0 or (scale.size == 1 and not block):
        return scale.reshape(())
    axis = axis % x.ndim
    if not block:
        if scale.ndim != 1 or scale.shape[0] != x.shape[axis]:
            raise ShapeError(f"{call.step.label}: a scale {tuple(scale.shape)} for axis {axis} of {tuple(x.shape)}")
        return scale.reshape(*[-1 if k == axis else 1 for k in range(x.ndim)])
    wide = tn.repeat_interleave(scale, block, axis=axis)
    return wide[tuple(slice(0, x.shape[axis]) if k == axis else slice(None) for k in range(x.ndim))]


@operator("QuantizeLinear", raw=True)
def quantize(call: OperatorCall, x: Any, scale: Any, zero: Any = None) -> Any:
    number = call.get("output_dtype", 0)
    dtype = zero_type(zero) if zero is not None else numpy_type(number or onnx.TensorProto.UINT8, call)
    if dtype.name in RANGES:
        found = known_where_possible(lambda *a: _quantized(call, dtype, *a), x, scale, zero)
        return found if dtype in REGULAR else Known(host(found).astype(dtype))
    y = known_where_possible(lambda a, s: as_tensor(a) / _spread(call, as_tensor(s), as_tensor(a)), x, scale)
    y = y if zero is None or not np.any(np.asarray(host(zero), np.float32)) else None
    if y is None:
        raise call.unsupported("a zero point of a floating type that is not 0")
    return Known(cast_array(host(y), dtype, False, call))


def zero_type(zero: Any) -> Any:
    """NumPy's type of a zero point."""
    return zero.array.dtype if isinstance(zero, Known) else zero.dtype.numpy


def _quantized(call: OperatorCall, dtype: Any, x: Any, scale: Any, zero: Any) -> Any:
    x, scale = as_tensor(x), as_tensor(scale)
    spread = _spread(call, scale, x)
    if x.dtype is tn.int32 or scale.dtype is not x.dtype:
        x, spread = tn.cast(x, tn.float32), tn.cast(spread, tn.float32)
    rounded = tn.rint(x / spread)
    if zero is not None:
        shift = tn.tensor(host(zero).astype(np.int32)) if is_known(zero) else tn.cast(zero, tn.int32)
        rounded = tn.cast(rounded, tn.float32) + tn.cast(_spread(call, shift, x), tn.float32)
    low, high = RANGES[dtype.name]
    small = tn.cast(tn.clip(rounded, low, high), tn.int32)
    return tn.cast(small, dtype) if dtype in REGULAR else small


@operator("DequantizeLinear", raw=True)
def dequantize(call: OperatorCall, x: Any, scale: Any, zero: Any = None) -> Any:
    return known_where_possible(lambda *args: _dequantized(call, *args), x, scale, zero)


def _dequantized(call: OperatorCall, x: Any, scale: Any, zero: Any) -> Any:
    scale = as_tensor(scale)
    dtype = scale.dtype if not call.get("output_dtype", 0) else numpy_type(call.get("output_dtype"), call)
    x, zero = _plain(x), None if zero is None else _plain(zero)
    wide = tn.float64 if scale.dtype is tn.float64 else tn.float32
    if zero is not None:
        x = x - _spread(call, zero, x)
    return tn.cast(tn.cast(x, wide) * tn.cast(_spread(call, scale, x), wide), dtype)


def _plain(x: Any) -> Any:
    """A quantised tensor as int32, or float32 where its type is a float."""
    if isinstance(x, Known):
        integral = x.array.dtype.name in RANGES
        return tn.tensor(x.array.astype(np.int32 if integral else np.float32))
    return tn.cast(x, tn.int32) if not x.dtype.is_floating else x


@operator("DynamicQuantizeLinear")
def dynamic_quantize(call: OperatorCall, x: Any) -> Any:
    """Eight bits for the range of the numbers, which holds 0."""
    zero = tn.zeros((), dtype=tn.float32)
    low, high = tn.minimum(tn.min(x), zero), tn.maximum(tn.max(x), zero)
    scale = (high - low) / 255.0
    scale = tn.where(scale == 0, 1.0, scale)
    point = tn.clip(tn.rint(-low / scale), 0, 255)
    y = tn.clip(tn.rint(x / scale) + point, 0, 255)
    return tn.cast(tn.cast(y, tn.int32), tn.uint8), scale, tn.cast(tn.cast(point, tn.int32), tn.uint8)


@operator("MatMulInteger")
def matmul_of_integers(call: OperatorCall, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return _integer_product(a, b, a_zero, b_zero)


def _integer_product(a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    """The product of integers, exact in 32 bits; a zero point may be one a row of a, one a column of b."""
    left, right = tn.cast(a, tn.int32), tn.cast(b, tn.int32)
    if a_zero is not None:
        left = left - _of_rows(tn.cast(a_zero, tn.int32), a)
    if b_zero is not None:
        right = right - tn.cast(b_zero, tn.int32)
    return tn.cast(tn.matmul(left, right), tn.int32)


def _of_rows(x: Any, a: Any) -> Any:
    """One number a row stands in a column."""
    return tn.expand_dims(x, -1) if x.ndim == 1 and x.size > 1 else x


def _requantized(total: Any, factor: Any, zero: Any) -> Any:
    """Sums in 32 bits as quantised numbers of another scale."""
    dtype = zero.dtype
    rounded = tn.rint(tn.cast(total, tn.float32) * factor) + tn.cast(zero, tn.float32)
    low, high = RANGES[dtype.name]
    return tn.cast(tn.cast(tn.clip(rounded, low, high), tn.int32), dtype)


@operator("QLinearMatMul")
def quantised_matmul(call: OperatorCall, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any,
                     y_scale: Any,
                     y_zero: Any) -> Any:
    if not y_zero.dtype.name.endswith("int8"):
        raise call.unsupported(f"results of type {y_zero.dtype}")
    scales = [tn.cast(s, tn.float32) for s in (a_scale, b_scale, y_scale)]
    factor = _of_rows(scales[0], a) * scales[1] / scales[2]
    return _requantized(_integer_product(a, b, a_zero, b_zero), factor, y_zero)


@operator("QLinearConv")
def quantised_convolution(call: OperatorCall, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any,
                          y_scale: Any, y_zero: Any, b: Any = None) -> Any:
    count = x.ndim - 2
    total = integer_convolution(call, shifted(x, x_zero, 1), shifted(w, w_zero, 0), w.shape[0])
    if b is not None:
        total = total + along_channels(b, count)
    scale = w_scale.reshape(()) if w_scale.size == 1 else along_channels(w_scale, count)
    return _requantized(total, x_scale.reshape(()) * scale / y_scale.reshape(()), y_zero.reshape(()))
