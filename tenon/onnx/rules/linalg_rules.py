"""Small linear systems by determinants, the one word that ONNX has for linear algebra: Cramer's rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, rule
from tenon.onnx.known_values import UnsupportedError

LARGEST = 8         # rows and columns: n * n determinants, which lose digits as n grows


@rule("inv")
def inv(w: Writer, node: Node, x: list[str]) -> Any:
    return _inverse(w, node, x[0])


@rule("solve")
def solve(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("MatMul", [_inverse(w, node, x[0]), x[1]])


@rule("slogdet")
def slogdet(w: Writer, node: Node, x: list[str]) -> Any:
    _matrix(node)
    found = w.emit("Det", [x[0]])
    return w.emit("Sign", [found]), w.emit("Log", [w.emit("Abs", [found])])


def _matrix(node: Node) -> tuple[Value, int]:
    """The matrix of a node, and its rows; raises UnsupportedError where these are many, or not known."""
    value = node.inputs[0]
    assert isinstance(value, Value)
    size = value.shape[-1]
    if not isinstance(size, int) or size > LARGEST:
        raise UnsupportedError(f"export: {node.op.name} of {value.type} is not supported: ONNX has determinants only, "
                               f"which do for matrices of up to {LARGEST} rows", where=node.loc)
    return value, size


def _inverse(w: Writer, node: Node, x: str) -> str:
    """Transposed cofactors over the determinant: element (i, j) of the minors leaves out row i and column j."""
    value, size = _matrix(node)
    ndim, dtype = value.ndim, value.dtype
    if size == 1:
        return str(w.emit("Reciprocal", [x]))
    kept = w.constant(np.array([[j for j in range(size) if j != i] for i in range(size)], np.int64))
    rows = w.emit("Gather", [x, kept], axis=ndim - 2)                   # [..., i, row, column]
    both = w.emit("Gather", [rows, kept], axis=ndim)                    # [..., i, row, j, column]
    lead = list(range(ndim - 2))
    minors = w.emit("Det", [w.emit("Transpose", [both], perm=[*lead, ndim, ndim - 2, ndim - 1, ndim + 1])])
    signs = w.constant(((-1.0) ** np.add.outer(np.arange(size), np.arange(size))).astype(dtype.numpy))
    over = w.emit("Unsqueeze", [w.emit("Det", [x]), w.ints([-2, -1])])
    return str(w.emit("Div", [w.emit("Mul", [minors, signs]), over]))   # [..., j, i]: transposed
