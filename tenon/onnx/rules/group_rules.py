"""Products of rows with the matrix of their group, as in a mixture of experts, as ONNX has it: a product a group.

What a group is, the data decide, so each is a slice between two sizes; what comes after the last one gives zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, element_number, rule
from tenon.onnx.known_values import UnsupportedError
from tenon.types import int64


@rule("grouped_rows")
def grouped_rows(w: Writer, node: Node, x: list[str]) -> Any:
    rows, matrices, ends = x
    table, result = node.inputs[1], node.outputs[0]
    assert isinstance(table, Value)
    count = table.shape[0]
    if not isinstance(count, int):
        raise UnsupportedError("export: groups whose number changes are not supported", where=node.loc)
    ends, start, pieces = w.emit("Cast", [ends], to=element_number(int64)), w.ints([0]), []
    for group in range(count):
        end = w.emit("Max", [start, w.emit("Slice", [ends, w.ints([group]), w.ints([group + 1])])])
        part = w.emit("Slice", [rows, start, end, w.ints([0])])
        matrix = w.emit("Gather", [matrices, w.constant(np.asarray(group, np.int64))], axis=0)
        pieces.append(w.emit("MatMul", [part, matrix]))
        start = end
    left = w.emit("Max", [w.emit("Sub", [w.shape(result.shape[:1]), start]), w.ints([0])])
    size = w.emit("Concat", [left, w.shape(result.shape[1:])], axis=0)
    return w.emit("Concat", [*pieces, w.emit("Expand", [w.scalar(0, result.dtype), size])], axis=0)
