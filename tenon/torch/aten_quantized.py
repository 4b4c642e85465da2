"""ATen's operators of training for quantized inference: numbers rounded to those that a few bits hold."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type


def _fake_quantized(x: Any, scale: Any, inverse: Any, zero_point: Any, low: int, high: int,
                    by_channel: bool = False) -> tuple[Any, Any]:
    """(the nearest number that is held, whether it lies in the range), in the precision of PyTorch's kernel."""
    x = as_type(x, tn.float32) if x.dtype.itemsize < 4 else x
    level = tn.add(tn.round(tn.multiply(x, as_type(inverse, x.dtype))), as_type(zero_point, x.dtype))
    steps = tn.subtract(tn.clip(level, low, high), as_type(zero_point, x.dtype))
    inside = tn.logical_and(tn.greater_equal(level, low), tn.less_equal(level, high))
    product = x.dtype if by_channel else tn.float32
    return tn.multiply(as_type(steps, product), as_type(scale, product)), inside


def _by_numbers(at: AtenCall, x: Any, scale: float, zero_point: int, low: int, high: int) -> Any:
    single = np.float32(scale)
    return _fake_quantized(x, float(single), float(np.float32(1) / single), zero_point, low, high)


def _by_tensors(at: AtenCall, x: Any, scale: Any, zero_point: Any, enabled: Any, low: int, high: int) -> Any:
    scale, zero_point, enabled = (tn.reshape(t, ()) for t in (scale, zero_point, enabled))
    held, inside = _fake_quantized(x, scale, tn.reciprocal(scale), zero_point, low, high)
    on = tn.not_equal(enabled, 0)
    return tn.where(on, as_type(held, x.dtype), x), tn.logical_or(inside, tn.logical_not(on))


def _by_channel(at: AtenCall, x: Any, scale: Any, zero_point: Any, axis: int, low: int, high: int) -> Any:
    if zero_point.dtype.kind == "f":
        raise UnmappedOperator("a zero point that is no integer")
    shape = tuple(-1 if k == axis % x.ndim else 1 for k in range(x.ndim))
    scale, zero_point = tn.reshape(scale, shape), tn.reshape(zero_point, shape)
    return _fake_quantized(x, scale, tn.reciprocal(scale), zero_point, low, high, by_channel=True)


QUANTIZED: dict[str, Rule] = {
    "fake_quantize_per_tensor_affine_cachemask": _by_numbers,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _by_tensors,
    "fake_quantize_per_channel_affine_cachemask": _by_channel,
}
