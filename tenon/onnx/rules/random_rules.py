"""Draws as ONNX has them: of a generator of the runtime's own, which nobody seeds; the state is not read."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.ir import Node
from tenon.onnx.graph_writer import Writer, element_number, rule
from tenon.types import DType, bfloat16, float32, float64, int64


def _drawn(w: Writer, op_type: str, shape: Any, dtype: DType) -> str:
    """Numbers of `RandomUniform` or `RandomNormal`; of a shape with symbols, like a tensor of that shape."""
    narrow = dtype is bfloat16
    number = element_number(float32 if narrow else dtype)
    if all(isinstance(size, int) for size in shape):
        found = w.emit(op_type, [], shape=list(shape), dtype=number)
    else:
        found = w.emit(f"{op_type}Like", [w.emit("Expand", [w.scalar(0, float32), w.shape(shape)])], dtype=number)
    return str(w.emit("Cast", [found], to=element_number(dtype)) if narrow else found)


@rule("random_uniform")
def random_uniform(w: Writer, node: Node, x: list[str]) -> Any:
    return _drawn(w, "RandomUniform", node.attrs["shape"], node.attrs["dtype"])


@rule("random_normal")
def random_normal(w: Writer, node: Node, x: list[str]) -> Any:
    return _drawn(w, "RandomNormal", node.attrs["shape"], node.attrs["dtype"])


@rule("random_exponential")
def random_exponential(w: Writer, node: Node, x: list[str]) -> Any:
    """-log(1 - u), and never 0."""
    dtype = node.attrs["dtype"]
    share = _drawn(w, "RandomUniform", node.attrs["shape"], dtype)
    least = w.scalar(2.0 ** -24, dtype)
    return w.emit("Neg", [w.emit("Log", [w.emit("Sub", [w.scalar(1, dtype), w.emit("Max", [share, least])])])])


@rule("random_integers")
def random_integers(w: Writer, node: Node, x: list[str]) -> Any:
    low, count = node.attrs["low"], node.attrs["count"]
    share = _drawn(w, "RandomUniform", node.attrs["shape"], float64)
    whole = w.emit("Cast", [w.emit("Mul", [share, w.scalar(float(count), float64)])], to=element_number(int64))
    return w.emit("Add", [w.emit("Min", [whole, w.constant(np.int64(count - 1))]), w.scalar(low, int64)])


@rule("random_advance")
def random_advance(w: Writer, node: Node, x: list[str]) -> Any:
    return x[0]
