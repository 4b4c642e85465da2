"""Random numbers: Tenon's generator, or with a seed what NumPy draws with it, the same in every call."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.function_bodies import element_type
from tenon.onnx.onnx_package import onnx
from tenon.onnx.operator_table import OperatorCall, operator
from tenon.onnx.operators.cast_ops import tenon_type
from tenon.onnx.operators.shape_ops import bounded


def _uniform(call: OperatorCall, shape: Any) -> Any:
    """Numbers from 0 to 1."""
    shape = bounded(shape, call)
    if call.get("seed") is not None:
        return tn.tensor(_seeded(call).uniform(0, 1, shape).astype(np.float32))
    return tn.rand(*shape)


def _normal(call: OperatorCall, shape: Any) -> Any:
    shape = bounded(shape, call)
    if call.get("seed") is not None:
        return tn.tensor(_seeded(call).normal(0, 1, shape).astype(np.float32))
    return tn.randn(*shape)


def _seeded(call: OperatorCall) -> np.random.RandomState:
    return np.random.RandomState(int(call.need("seed")) % (1 << 32))


def _dtype(call: OperatorCall, like: Any = None) -> Any:
    number = call.get("dtype", onnx.TensorProto.FLOAT if like is None else element_type(like))
    return tenon_type(number, call)


@operator("RandomUniform", random=True)
def random_uniform(call: OperatorCall) -> Any:
    low, high = call.get("low", 0.0), call.get("high", 1.0)
    return tn.cast(_uniform(call, call.need("shape")) * (high - low) + low, _dtype(call))


@operator("RandomUniformLike", random=True)
def random_uniform_like(call: OperatorCall, x: Any) -> Any:
    low, high = call.get("low", 0.0), call.get("high", 1.0)
    return tn.cast(_uniform(call, x.shape) * (high - low) + low, _dtype(call, x))


@operator("RandomNormal", random=True)
def random_normal(call: OperatorCall) -> Any:
    return tn.cast(_normal(call, call.need("shape")) * call.get("scale", 1.0) + call.get("mean", 0.0), _dtype(call))


@operator("RandomNormalLike", random=True)
def random_normal_like(call: OperatorCall, x: Any) -> Any:
    return tn.cast(_normal(call, x.shape) * call.get("scale", 1.0) + call.get("mean", 0.0), _dtype(call, x))


@operator("Bernoulli", random=True)
def bernoulli(call: OperatorCall, x: Any) -> Any:
    return tn.cast(_uniform(call, x.shape) < x, _dtype(call, x))


@operator("Multinomial", random=True)
def multinomial(call: OperatorCall, x: Any) -> Any:
    """Places drawn with the probabilities whose logarithms are given."""
    count, dtype = call.get("sample_size", 1), tenon_type(call.get("dtype", onnx.TensorProto.INT32), call)
    total = tn.cumsum(tn.softmax(tn.cast(x, tn.float32), axis=-1), axis=-1)
    drawn = _uniform(call, (x.shape[0], count, 1))
    places = tn.sum(tn.cast(drawn >= tn.expand_dims(total, 1), tn.int64), axis=-1)
    return tn.cast(tn.minimum(places, x.shape[-1] - 1), dtype)
