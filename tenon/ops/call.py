"""Operators whose meaning is a graph that they hold."""

from __future__ import annotations

from typing import Any

from tenon.graph.interpret import interpret_within
from tenon.graph.ir import Graph
from tenon.ops.define import define
from tenon.types import TensorType


def result_types(*xs: TensorType, body: Graph) -> TensorType | tuple[TensorType, ...]:
    types = tuple(r.type for r in body.results)
    return types if len(types) > 1 else types[0]


def run_body(*xs: Any, body: Graph) -> Any:
    results = interpret_within(body, xs)
    return tuple(results) if len(results) > 1 else results[0]


fused = define("fused", public=False, type=result_types, ref=run_body,
               doc="Several operators as one kernel: `body`, a graph of the inputs.  The pass `fuse` makes it.")
