"""Indices: gathering, scattering, choosing."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.errors import ShapeError
from tenon.onnx.known_values import ints
from tenon.onnx.operator_table import OperatorCall, axis_of, operator
from tenon.onnx.operators.shape_ops import bounded


@operator("Gather", moves=True)
def gather(call: OperatorCall, x: Any, indices: Any) -> Any:
    return tn.take(x, indices, axis=axis_of(call.get("axis", 0), x, call))


@operator("GatherElements", moves=True)
def gather_elements(call: OperatorCall, x: Any, indices: Any) -> Any:
    axis = axis_of(call.get("axis", 0), x, call)
    x = x[tuple(slice(None) if k == axis else slice(0, d) for k, d in enumerate(indices.shape))]
    return tn.take_along_axis(x, indices, axis=axis)


def _coordinates(x: Any, indices: Any, batch: int) -> tuple[Any, ...]:
    """An index an axis, which NumPy's way of indexing takes together."""
    depth = indices.shape[-1]
    lead = [tn.arange(x.shape[k]).reshape(*[-1 if j == k else 1 for j in range(indices.ndim - 1)])
            for k in range(batch)]
    return (*lead, *[indices[..., k] for k in range(depth)])


@operator("GatherND", moves=True)
def gather_nd(call: OperatorCall, x: Any, indices: Any) -> Any:
    return x[_coordinates(x, tn.cast(indices, tn.int64), call.get("batch_dims", 0))]


REDUCE = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@operator("ScatterElements", moves=True)
def scatter_elements(call: OperatorCall, x: Any, indices: Any, updates: Any) -> Any:
    axis = axis_of(call.get("axis", 0), x, call)
    if tuple(indices.shape) != tuple(updates.shape):
        raise ShapeError(f"{call.step.label}: indices {tuple(indices.shape)} and updates {tuple(updates.shape)} differ")
    return _scatter(x, [indices if k == axis else tn.arange(d).reshape(*[-1 if j == k else 1 for j in range(x.ndim)])
                        for k, d in enumerate(indices.shape)], updates, call.get("reduction", "none"))


@operator("Scatter", moves=True)
def scatter(call: OperatorCall, x: Any, indices: Any, updates: Any) -> Any:
    return scatter_elements(call, x, indices, updates)


@operator("ScatterND", moves=True)
def scatter_nd(call: OperatorCall, x: Any, indices: Any, updates: Any) -> Any:
    indices = tn.cast(indices, tn.int64)
    depth = indices.shape[-1]
    rest = x.shape[depth:]
    index: list[Any] = [indices[..., k].reshape(*indices.shape[:-1], *[1] * len(rest)) for k in range(depth)]
    index += [tn.arange(d).reshape(*[1] * (indices.ndim - 1), *[-1 if j == k else 1 for j in range(len(rest))])
              for k, d in enumerate(rest)]
    return _scatter(x, index, updates, call.get("reduction", "none"))


def _scatter(x: Any, index: list[Any], updates: Any, how: str) -> Any:
    """Updates at places that an index an axis says, one after the other."""
    place: Any = 0
    for k, size in zip(index, x.shape):
        k = tn.where(k < 0, k + size, k)
        place = place * size + k
    place = tn.broadcast_to(place, updates.shape).reshape(-1)
    flat = tn.scatter(x.reshape(-1), place, updates.reshape(-1), axis=0, reduce=REDUCE[how])
    return flat.reshape(*x.shape)


@operator("TensorScatter")
def tensor_scatter(call: OperatorCall, past: Any, update: Any, write: Any = None) -> Any:
    """A cache with new rows written from a place of its own in each batch on."""
    axis, batch, count = axis_of(call.get("axis", -2), past, call), past.shape[0], update.shape[call.get("axis", -2)]
    start = tn.zeros((batch,), dtype=tn.int64) if write is None else tn.cast(write, tn.int64)
    rows = start.reshape(batch, 1) + tn.arange(count)
    if call.get("mode", "linear") == "circular":
        rows = tn.remainder(rows, past.shape[axis])
    shape = [batch if k == 0 else count if k == axis else 1 for k in range(past.ndim)]
    return tn.scatter(past, tn.broadcast_to(rows.reshape(*shape), update.shape), update, axis=axis)


@operator("OneHot", known="depth")
def one_hot(call: OperatorCall, indices: Any, depth: Any, values: Any) -> Any:
    count, axis = ints(depth)[0], call.get("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    bounded([*indices.shape, count], call)
    places = tn.cast(indices, tn.int64)
    places = tn.expand_dims(tn.where(places < 0, places + count, places), axis)
    row = tn.arange(count).reshape(*[-1 if k == axis else 1 for k in range(places.ndim)])
    return tn.where(places == row, values[1], values[0])


@operator("NonZero")
def non_zero(call: OperatorCall, x: Any) -> Any:
    if x.ndim == 0:
        x = x.reshape(1)
        return tn.argwhere(x != 0).mT[:0]
    return tn.argwhere(x if x.dtype is tn.bool else x != 0).mT


@operator("Compress", moves=True)
def compress(call: OperatorCall, x: Any, condition: Any) -> Any:
    axis = call.get("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, x, call))
    places = tn.argwhere(condition).reshape(-1)
    return tn.take(x, places, axis=axis)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml", moves=True)
def array_feature_extractor(call: OperatorCall, x: Any, indices: Any) -> Any:
    found = tn.take(x, indices.reshape(-1), axis=x.ndim - 1)
    return found.reshape(1, -1) if x.ndim == 1 else found
