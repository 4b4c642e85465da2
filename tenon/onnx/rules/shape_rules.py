"""Shapes, pieces and constants as ONNX has them."""

from __future__ import annotations

from typing import Any

from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, rule
from tenon.onnx.known_values import UnsupportedError
from tenon.onnx.rules.elementwise_rules import cast_to, result_dtype
from tenon.types import bool_, float32, int64


@rule("reshape")
def reshape(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Reshape", [x[0], w.shape(node.outputs[0].shape)], allowzero=1 if w.opset >= 14 else None)


@rule("broadcast_to")
@rule("full_op")
def broadcast_to(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Expand", [x[0], w.shape(node.outputs[0].shape)])


@rule("constant")
def constant(w: Writer, node: Node, x: list[str]) -> Any:
    array, = evaluate_op(node.op, [], node.attrs)
    return w.constant(array)


@rule("permute")
def permute(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Transpose", x, perm=list(node.attrs["axes"]))


@rule("concat")
def concat(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Concat", x, axis=node.attrs["axis"])


@rule("slice")
def slices(w: Writer, node: Node, x: list[str]) -> Any:
    a, (value,) = node.attrs, node.inputs
    assert isinstance(value, Value)
    begin, end, by = [], [], []
    for n, start, stop, step in zip(value.shape, a["start"], a["stop"], a["step"], strict=True):
        by.append(1 if step is None else step)
        begin.append((0 if by[-1] > 0 else n - 1) if start is None else start)
        far = n if by[-1] > 0 else -(2 ** 62)
        end.append(far if stop is None or (by[-1] < 0 and isinstance(stop, int) and stop < 0) else stop)
    return w.emit("Slice", [x[0], w.shape(begin), w.shape(end), w.ints(range(len(by))), w.ints(by)])


@rule("pad")
def pad(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    if any(a.get("interior") or ()):
        raise UnsupportedError("export: padding between elements is not supported", where=node.loc)
    if result_dtype(node) is bool_:
        wide = w.emit("Pad", [cast_to(w, x[0], bool_, float32), w.shape([*a["low"], *a["high"]]),
                              cast_to(w, x[1], bool_, float32)])
        return cast_to(w, wide, float32, bool_)
    return w.emit("Pad", [x[0], w.shape([*a["low"], *a["high"]]), x[1]])


@rule("arange")
def arange(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    count = w.emit("Squeeze", [w.size(a["size"])])
    whole = w.emit("Range", [w.scalar(0, int64), count, w.scalar(1, int64)])
    found = cast_to(w, whole, int64, a["dtype"])

    def number(size: Any) -> str:
        if isinstance(size, (int, float)):
            return w.scalar(size, a["dtype"])
        return cast_to(w, w.emit("Squeeze", [w.size(size)]), int64, a["dtype"])
    if a["step"] != 1:
        found = w.emit("Mul", [found, number(a["step"])])
    return found if isinstance(a["start"], (int, float)) and a["start"] == 0 else \
        w.emit("Add", [found, number(a["start"])])


@rule("dimension")
def dimension(w: Writer, node: Node, x: list[str]) -> Any:
    return cast_to(w, w.emit("Squeeze", [w.size(node.attrs["size"])]), int64, node.attrs["dtype"])


@rule("diagonal")
def diagonal(w: Writer, node: Node, x: list[str]) -> Any:
    """Elements one row and one column apart, of the last two axes laid end to end."""
    value, offset = node.inputs[0], node.attrs["offset"]
    assert isinstance(value, Value)
    columns = value.shape[-1]
    flat = w.emit("Reshape", [x[0], w.shape([*value.shape[:-2], value.shape[-2] * columns])])
    first = max(-offset, 0) * columns + max(offset, 0)
    return w.emit("Gather", [flat, places(w, first, node.outputs[0].shape[-1], columns + 1)], axis=-1)


def places(w: Writer, start: Any, count: Any, step: Any) -> str:
    """The numbers start, start + step, ...: a vector of int64."""
    whole = w.emit("Range", [w.scalar(0, int64), w.emit("Squeeze", [w.size(count)]), w.scalar(1, int64)])
    return str(w.emit("Add", [w.emit("Mul", [whole, w.size(step)]), w.size(start)]))


@rule("slice_update")
def slice_update(w: Writer, node: Node, x: list[str]) -> Any:
    """Axis after axis of the places that are written, as ScatterND takes them."""
    updates, a = node.inputs[1], node.attrs
    assert updates is not None
    sizes, columns = updates.type.shape, []
    for axis, (n, start, step) in enumerate(zip(sizes, a["start"], a["step"], strict=True)):
        beside = [1] * axis + [-1] + [1] * (len(sizes) - axis - 1)
        column = w.emit("Reshape", [places(w, start, n, step), w.ints(beside)])
        columns.append(w.emit("Unsqueeze", [w.emit("Expand", [column, w.shape(sizes)]), w.ints([-1])]))
    return w.emit("ScatterND", [x[0], w.emit("Concat", columns, axis=-1), x[1]]) if sizes else x[1]
