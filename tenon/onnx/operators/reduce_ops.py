"""Sums and the like over axes.  Axes are an attribute, and an input in newer opsets: both are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.known_values import ints
from tenon.onnx.operator_table import OperatorCall, operator


def _log_sum_exp(x: Any, axis: Any, keepdims: bool) -> Any:
    return tn.logsumexp(x, axis=axis, keepdims=keepdims)


def _extreme(function: Callable[..., Any], largest: bool) -> Callable[..., Any]:
    def run(x: Any, axis: Any, keepdims: bool) -> Any:
        axes = range(x.ndim) if axis is None else [a % x.ndim for a in axis]
        if any(x.shape[a] == 0 for a in axes):      # the largest of nothing is the least that there is
            shape = [1 if k in axes else d for k, d in enumerate(x.shape)]
            if not keepdims:
                shape = [d for k, d in enumerate(x.shape) if k not in axes]
            return tn.full(shape, _least(x.dtype, not largest), dtype=x.dtype)
        if x.dtype is tn.bool:
            return function(x.cast(tn.uint8), axis=axis, keepdims=keepdims).cast(tn.bool)
        return function(x, axis=axis, keepdims=keepdims)
    return run


def _least(dtype: Any, negated: bool) -> Any:
    if dtype is tn.bool:
        return negated
    if dtype.is_floating:
        return float("inf") if negated else -float("inf")
    return int(np.iinfo(dtype.numpy).max if negated else np.iinfo(dtype.numpy).min)


REDUCTIONS: dict[str, Callable[[Any, Any, bool], Any]] = {
    "ReduceSum": lambda x, a, k: tn.sum(x, axis=a, keepdims=k),
    "ReduceMean": lambda x, a, k: tn.mean(x, axis=a, keepdims=k) if x.dtype.is_floating
    else tn.div(tn.sum(x, axis=a, keepdims=k), int(np.prod([x.shape[i] for i in a or range(x.ndim)])),
                rounding_mode="trunc"),
    "ReduceProd": lambda x, a, k: tn.prod(x, axis=a, keepdims=k),
    "ReduceMax": _extreme(tn.max, True), "ReduceMin": _extreme(tn.min, False),
    "ReduceL1": lambda x, a, k: tn.sum(tn.abs(x), axis=a, keepdims=k),
    "ReduceL2": lambda x, a, k: tn.sqrt(tn.sum(x * x, axis=a, keepdims=k)),
    "ReduceSumSquare": lambda x, a, k: tn.sum(x * x, axis=a, keepdims=k),
    "ReduceLogSum": lambda x, a, k: tn.log(tn.sum(x, axis=a, keepdims=k)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _enter(name: str, function: Callable[[Any, Any, bool], Any]) -> None:
    @operator(name, known="axes")
    def run(call: OperatorCall, x: Any, axes: Any = None) -> Any:
        chosen = call.get("axes") if axes is None else ints(axes)
        if not chosen and call.get("noop_with_empty_axes", 0):
            chosen = []
        elif not chosen:
            chosen = None
        if x.ndim == 0:
            chosen = None
        axis = None if chosen is None else tuple(chosen)
        return tn.cast(function(x, axis, bool(call.get("keepdims", 1))), x.dtype)


for name, function in REDUCTIONS.items():
    _enter(name, function)


def _place(call: OperatorCall, x: Any, function: Callable[..., Any]) -> Any:
    axis = call.get("axis", 0) % max(x.ndim, 1)
    keep = bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return function(x, axis=axis, keepdims=keep)
    return x.shape[axis] - 1 - function(tn.flip(x, axis), axis=axis, keepdims=keep)


@operator("ArgMax")
def arg_max(call: OperatorCall, x: Any) -> Any:
    return _place(call, x, tn.argmax)


@operator("ArgMin")
def arg_min(call: OperatorCall, x: Any) -> Any:
    return _place(call, x, tn.argmin)


@operator("TopK", known="k")
def top_k(call: OperatorCall, x: Any, k: Any = None) -> Any:
    """Places of equal elements are in their order, so elements are sorted rather than picked."""
    count = call.need("k") if k is None else ints(k)[0]
    axis = call.get("axis", -1) % x.ndim
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k is {count}, and the axis has {x.shape[axis]} elements")
    return tuple(tn.topk(x, count, axis=axis, largest=bool(call.get("largest", 1))))
