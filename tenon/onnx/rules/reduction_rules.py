"""Reductions, positions, indices and orders as ONNX has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, element_number, rule
from tenon.onnx.rules.elementwise_rules import cast_to, result_dtype
from tenon.ops.pooling import lowest
from tenon.types import DType, TensorType, bool_, int64


def _reduction(name: str, op_type: str, by_input: int) -> None:
    """Axes are an attribute before the opset `by_input`."""
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        value, a = node.inputs[0], node.attrs
        assert isinstance(value, Value)
        axes = list(range(value.ndim)) if a["axis"] is None else list(a["axis"])
        given = cast_to(w, x[0], value.dtype, result_dtype(node))
        keep = int(bool(a["keepdims"]))
        if not axes:
            return given
        if w.opset >= by_input:
            return w.emit(op_type, [given, w.ints(axes)], keepdims=keep)
        return w.emit(op_type, [given], axes=axes, keepdims=keep)


for _name, _op_type, _by in (("sum", "ReduceSum", 13), ("prod", "ReduceProd", 18), ("max", "ReduceMax", 18),
                             ("min", "ReduceMin", 18), ("any", "ReduceMax", 18), ("all", "ReduceMin", 18),
                             ("mean", "ReduceMean", 18), ("logsumexp", "ReduceLogSumExp", 18)):
    _reduction(_name, _op_type, _by)


def _position(name: str, op_type: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        a, axis = node.attrs, node.attrs["axis"]
        axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
        if not isinstance(axis, int):
            flat = w.emit("Reshape", [x[0], w.ints([-1])])
            found = w.emit(op_type, [flat], axis=0, keepdims=0)
            return w.emit("Reshape", [found, w.shape(node.outputs[0].shape)]) if a["keepdims"] else found
        return w.emit(op_type, [x[0]], axis=axis, keepdims=int(bool(a["keepdims"])))


_position("argmax", "ArgMax")
_position("argmin", "ArgMin")


def _running(name: str, op_type: str, since: int) -> None:
    @rule(name, since)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type, [x[0], w.scalar(node.attrs["axis"], int64)], reverse=int(node.attrs["reverse"]))


_running("cumsum", "CumSum", 14)


@rule("wrap_index")
def wrap_index(w: Writer, node: Node, x: list[str]) -> Any:
    value = node.inputs[0]
    assert isinstance(value, Value)
    size = cast_to(w, w.emit("Squeeze", [w.size(node.attrs["size"])]), int64, value.dtype)
    return w.emit("Where", [w.emit("Less", [x[0], w.scalar(0, value.dtype)]), w.emit("Add", [x[0], size]), x[0]])


def _index(w: Writer, node: Node, k: int, name: str) -> str:
    """An index as int64."""
    value = node.inputs[k]
    assert value is not None
    return cast_to(w, name, value.type.dtype, int64)


@rule("take")
def take(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Gather", [x[0], _index(w, node, 1, x[1])], axis=node.attrs["axis"])


@rule("embedding")
def embedding(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Gather", [x[1], _index(w, node, 0, x[0])], axis=0)


@rule("gather")
def gather(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("GatherElements", [x[0], _index(w, node, 1, x[1])], axis=node.attrs["axis"])


HOW = {"set": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


@rule("scatter", 16)
def scatter(w: Writer, node: Node, x: list[str]) -> Any:
    value, at, updates = node.inputs
    assert value is not None and at is not None and updates is not None
    given = x[2] if updates.ndim == at.ndim else w.emit("Expand", [x[2], w.emit("Shape", [x[1]])])
    return w.emit("ScatterElements", [x[0], _index(w, node, 1, x[1]), given], axis=node.attrs["axis"],
                  reduction=HOW[node.attrs["reduce"]])


@rule("put", 16)
def put(w: Writer, node: Node, x: list[str]) -> Any:
    """Rows along an axis: that axis goes to the front, and comes back."""
    (value, at, updates), axis = node.inputs, node.attrs["axis"]
    assert isinstance(value, Value) and at is not None and updates is not None
    there = [axis, *(k for k in range(value.ndim) if k != axis)]
    rows = [*range(axis, axis + at.ndim), *range(axis), *range(axis + at.ndim, updates.ndim)]
    front = x[0] if axis == 0 else w.emit("Transpose", [x[0]], perm=there)
    given = x[2] if axis == 0 else w.emit("Transpose", [x[2]], perm=rows)
    places = w.emit("Unsqueeze", [_index(w, node, 1, x[1]), w.ints([-1])])
    found = w.emit("ScatterND", [front, places, given], reduction=HOW[node.attrs["reduce"]])
    return found if axis == 0 else w.emit("Transpose", [found], perm=list(np.argsort(there)))


@rule("argsort")
def argsort(w: Writer, node: Node, x: list[str]) -> Any:
    return _sorted(w, node, x)[1]


@rule("sort")
def sort(w: Writer, node: Node, x: list[str]) -> Any:
    values, places = _sorted(w, node, x)
    return values if len(node.outputs) == 1 else (values, places)


def _sorted(w: Writer, node: Node, x: list[str]) -> Any:
    value, a = node.inputs[0], node.attrs
    assert isinstance(value, Value)
    axis = a["axis"] % value.ndim
    return w.emit("TopK", [x[0], w.size(value.shape[axis])], 2, axis=axis, largest=int(a["descending"]))


@rule("first_places")
def first_places(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    return w.emit("TopK", [x[0], w.size(a["k"])], 2, axis=a["axis"], largest=int(a["descending"]))[1]


@rule("one_hot")
def one_hot(w: Writer, node: Node, x: list[str]) -> Any:
    dtype = result_dtype(node)
    return w.emit("OneHot", [_index(w, node, 0, x[0]), w.scalar(node.attrs["num_classes"], int64),
                             w.constant(np.array([0, 1], dtype.numpy))], axis=-1)


@rule("argwhere")
def argwhere(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Transpose", [w.emit("NonZero", x)], perm=[1, 0])


# ---------------------------------------------------------------- searches, and what goes along an axis

@rule("searchsorted")
def searchsorted(w: Writer, node: Node, x: list[str]) -> Any:
    """How many elements are before each value; NaN is behind all."""
    edges, values = node.inputs
    assert edges is not None and values is not None
    value = w.emit("Unsqueeze", [x[1], w.ints([-1])])
    row = w.emit("Unsqueeze", [x[0], w.ints([-2])]) if edges.type.ndim > 1 else x[0]
    after = "Greater" if node.attrs["right"] else "GreaterOrEqual"
    before = w.emit("Not", [w.emit(after, [row, value])])
    return w.emit("ReduceSum", [w.emit("Cast", [before], to=element_number(int64)), w.ints([-1])], keepdims=0)


def along(w: Writer, node: Node, x: str, starts: list[tuple[str, Any]], reverse: bool,
          step: Callable[[list[str], str], list[str]]) -> list[str]:
    """A Scan along an axis: what `step(state, elements)` gives is the new state, and a result each."""
    value, axis = node.inputs[0], node.attrs["axis"]
    assert isinstance(value, Value)
    others = tuple(n for k, n in enumerate(value.shape) if k != axis)
    states, row = [w.fresh("state") for _ in starts], w.fresh("row")
    declared = [*(w.declare(name, dtype, others) for name, (_, dtype) in zip(states, starts, strict=True)),
                w.declare(row, value.dtype, others)]

    def write() -> Any:
        new = step(states, row)
        return [(name, TensorType(dtype, others)) for name, (_, dtype) in zip(new * 2, starts * 2, strict=True)]
    body = w.subgraph("step", write, declared)
    first = [w.emit("Expand", [start, w.shape(others)]) for start, _ in starts]
    n, way = len(starts), int(reverse)
    return list(w.emit("Scan", [*first, x], 2 * n, body=body, num_scan_inputs=1, scan_input_axes=[axis],
                       scan_input_directions=[way], scan_output_axes=[axis] * n, scan_output_directions=[way] * n))[n:]


def _product(w: Writer, node: Node, x: list[str]) -> Any:
    d, reverse = result_dtype(node), int(node.attrs["reverse"])
    if w.opset >= 26:
        return w.emit("CumProd", [x[0], w.scalar(node.attrs["axis"], int64)], reverse=reverse)
    return along(w, node, x[0], [(w.scalar(1, d), d)], node.attrs["reverse"],
                 lambda state, row: [w.emit("Mul", [*state, row])])


def _log_total(w: Writer, node: Node, x: list[str]) -> Any:
    d = result_dtype(node)

    def step(state: list[str], row: str) -> list[str]:
        most = w.emit("Max", [*state, row])
        less = w.emit("Neg", [w.emit("Abs", [w.emit("Sub", [*state, row])])])
        both = w.emit("Add", [most, w.emit("Log", [w.emit("Add", [w.emit("Exp", [less]), w.scalar(1, d)])])])
        return [w.emit("Where", [w.emit("Equal", [*state, row]), w.emit("Add", [most, w.scalar(np.log(2), d)]), both])]
    return along(w, node, x[0], [(w.scalar(-np.inf, d), d)], node.attrs["reverse"], step)


def _most(d: DType) -> Any:
    if d is bool_:
        return True
    return np.inf if d.is_floating else np.iinfo(d.numpy).max


def _running_extreme(name: str, op_type: str, better: str) -> None:
    @rule(name, 16)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        d = result_dtype(node)
        least = lowest(d) if op_type == "Max" else _most(d)

        def step(state: list[str], row: str) -> list[str]:
            best, place, turn = state
            new = w.emit(better, [row, best])
            if d.is_floating:
                new = w.emit("Or", [new, w.emit("IsNaN", [row])])
            return [w.emit(op_type, [best, row]), w.emit("Where", [new, turn, place]),
                    w.emit("Add", [turn, w.scalar(1, int64)])]
        zero = w.scalar(0, int64)
        return along(w, node, x[0], [(w.scalar(least, d), d), (zero, int64), (zero, int64)], False, step)[:2]


rule("cumprod")(_product)
rule("logcumsumexp")(_log_total)
_running_extreme("cummax", "Max", "GreaterOrEqual")
_running_extreme("cummin", "Min", "LessOrEqual")
