"""Element types: Cast, CastLike, and the types that Tenon has not, which NumPy and ml_dtypes know."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.function_bodies import element_type
from tenon.onnx.known_values import REGULAR, Known, host
from tenon.onnx.onnx_package import onnx
from tenon.onnx.operator_table import OperatorCall, operator


def numpy_type(number: int, call: OperatorCall) -> Any:
    """NumPy's type of an ONNX number."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, ValueError, TypeError):
        raise call.unsupported(f"the element type {number}") from None


def tenon_type(number: int, call: OperatorCall) -> Any:
    """Tenon's type of an ONNX number."""
    dtype = numpy_type(number, call)
    if dtype not in REGULAR or number == onnx.TensorProto.STRING:
        raise call.unsupported(f"the element type {onnx.TensorProto.DataType.Name(number)}")
    return dtype


@operator("Cast", raw=True)
def cast(call: OperatorCall, x: Any) -> Any:
    return cast_to(call, x, call.need("to"))


@operator("CastLike", raw=True)
def cast_like(call: OperatorCall, x: Any, like: Any) -> Any:
    return cast_to(call, x, element_type(like))


def cast_to(call: OperatorCall, x: Any, number: int) -> Any:
    """A value with elements of another type."""
    dtype = numpy_type(number, call)
    text = number == onnx.TensorProto.STRING
    if isinstance(x, tn.Tensor) and dtype in REGULAR and not text:
        return x if x.dtype.numpy == dtype else cast_tensor(x, dtype)
    return Known(cast_array(host(x), dtype, text, call))


def cast_tensor(x: Any, dtype: Any) -> Any:
    """Numbers beyond an integer type take what lies in its range, and wrap, as NumPy's do."""
    if x.dtype.is_floating and dtype.kind in "iu" and dtype.itemsize < 4:
        return tn.cast(tn.cast(x, tn.int32), dtype)
    return tn.cast(x, dtype)


def cast_array(array: Any, dtype: Any, text: bool, call: OperatorCall) -> Any:
    """The same of an array; types of few bits hold the nearest that they have."""
    if text:
        return _texts(array)
    if array.dtype.kind in "OUS":
        words = [str(x) for x in array.reshape(-1)]
        if dtype.kind in "iu":
            return np.array([int(float(w)) if "." in w or "e" in w.lower() else int(w) for w in words],
                            np.int64).astype(dtype).reshape(array.shape)
        return np.array([float(w) for w in words]).reshape(array.shape).astype(dtype)
    with np.errstate(all="ignore"):
        if dtype in REGULAR:
            return array.astype(np.float32).astype(dtype) if array.dtype not in REGULAR else array.astype(dtype)
        return _narrow(array, dtype, call)


def _narrow(array: Any, dtype: Any, call: OperatorCall) -> Any:
    name = dtype.name
    if name == "float8_e8m0fnu":
        return onnx.numpy_helper.to_float8e8m0(np.asarray(array, np.float32), saturate=bool(call.get("saturate", 1)),
                                               round_mode=call.get("round_mode", "up"))
    if name.startswith("float8"):
        wide = np.asarray(array, np.float32)
        return onnx.numpy_helper.saturate_cast(wide, dtype) if call.get("saturate", 1) else wide.astype(dtype)
    if name.startswith("float"):
        return onnx.numpy_helper.saturate_cast(np.asarray(array, np.float32), dtype)
    wide = np.asarray(array, np.float32) if array.dtype not in REGULAR else array
    return wide.astype(np.int64).astype(np.int8 if name.startswith("int") else np.uint8).astype(dtype) \
        if wide.dtype.kind != "f" else wide.astype(dtype)


def _texts(array: Any) -> Any:
    if array.dtype.kind in "OUS":
        return array
    if array.dtype.kind == "f" or array.dtype not in REGULAR:
        words = [f"{np.float32(x):.9g}" if array.dtype.itemsize < 8 else f"{x:.17g}" for x in array.reshape(-1)]
        words = [{"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(w, w) for w in words]
        words = [str(x) if np.isfinite(x) else w for x, w in zip(array.reshape(-1), words)]
    else:
        words = [str(x) for x in array.reshape(-1)]
    found = np.empty(len(words), object)
    found[:] = words
    return found.reshape(array.shape)
