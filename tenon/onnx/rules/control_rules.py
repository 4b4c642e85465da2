"""Graphs within graphs: calls, branches and loops as ONNX has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.ir import Node
from tenon.onnx.graph_writer import Writer, rule
from tenon.types import TensorType, bool_, int64


@rule("call")
def call(w: Writer, node: Node, x: list[str]) -> Any:
    return w.write(node.attrs["body"], x)


@rule("barrier")
def barrier(w: Writer, node: Node, x: list[str]) -> Any:
    return [w.emit("Identity", [name]) for name in x]


@rule("cond")
def cond(w: Writer, node: Node, x: list[str]) -> Any:
    def branch(name: str) -> Any:
        graph = node.attrs[name]
        return w.subgraph(name, lambda: list(zip(w.write(graph, x[1:]), [r.type for r in graph.results])))
    found = w.emit("If", x[:1], len(node.outputs), then_branch=branch("true"), else_branch=branch("false"))
    return found


@rule("switch")
def switch(w: Writer, node: Node, x: list[str]) -> Any:
    """One If after the other: the first branch for numbers up to 0, the last for all behind."""
    branches, chosen = node.attrs["branches"], node.inputs[0]
    assert chosen is not None

    def written(k: int) -> list[tuple[str, TensorType]]:
        types = [r.type for r in branches[k].results]
        if k == len(branches) - 1:
            return list(zip(w.write(branches[k], x[1:]), types, strict=True))
        here = w.emit("LessOrEqual", [x[0], w.scalar(k, chosen.type.dtype)])
        first = w.subgraph("then", lambda: list(zip(w.write(branches[k], x[1:]), types, strict=True)))
        rest = w.subgraph("else", lambda: written(k + 1))
        found = w.emit("If", [here], len(types), then_branch=first, else_branch=rest)
        return list(zip([found] if isinstance(found, str) else found, types, strict=True))
    return [name for name, _ in written(0)]


SCALAR_BOOL, SCALAR_INT = TensorType(bool_, ()), TensorType(int64, ())


@rule("while_loop")
def while_loop(w: Writer, node: Node, x: list[str]) -> Any:
    a, fixed = node.attrs, x[:node.attrs["constants"]]
    start, condition, body = x[len(fixed):], a["condition"], a["body"]
    inputs = [w.fresh("turn"), w.fresh("goes_on"), *[w.fresh("carried") for _ in start]]
    types = [SCALAR_INT, SCALAR_BOOL, *[r.type for r in body.results]]
    declared = [w.declare(n, t.dtype, t.shape) for n, t in zip(inputs, types, strict=True)]

    def write() -> Any:
        new = w.write(body, [*fixed, *inputs[2:]])
        goes_on, = w.write(condition, [*fixed, *new])
        return list(zip([goes_on, *new], types[1:], strict=True))
    first, = w.write(condition, x)
    graph = w.subgraph("body", write, declared)
    return w.emit("Loop", ["", first, *start], len(node.outputs), body=graph)


@rule("scan")
def scan(w: Writer, node: Node, x: list[str]) -> Any:
    """A Loop that reads row after row: ONNX's Scan needs something to go along."""
    a = node.attrs
    fixed, start = x[:a["constants"]], x[a["constants"]:a["constants"] + a["carried"]]
    rows, body = x[a["constants"] + a["carried"]:], a["body"]
    inputs = [w.fresh("turn"), w.fresh("goes_on"), *[w.fresh("carried") for _ in start]]
    types = [SCALAR_INT, SCALAR_BOOL, *[r.type for r in body.results[:len(start)]]]
    declared = [w.declare(n, t.dtype, t.shape) for n, t in zip(inputs, types, strict=True)]
    length = w.emit("Squeeze", [w.size(a["length"])])

    def write() -> Any:
        place = w.emit("Sub", [w.emit("Sub", [length, w.scalar(1, int64)]), inputs[0]]) if a["reverse"] else inputs[0]
        given = [w.emit("Gather", [row, place], axis=0) for row in rows]
        new = w.write(body, [*fixed, *inputs[2:], *given])
        return [(inputs[1], SCALAR_BOOL), *zip(new, [r.type for r in body.results], strict=True)]
    graph = w.subgraph("body", write, declared)
    found = w.emit("Loop", [length, w.constant(np.array(True)), *start], len(node.outputs), body=graph)
    found = [found] if isinstance(found, str) else found
    if not a["reverse"]:
        return found
    back = [w.ints([-1]), w.ints([-(2 ** 62)]), w.ints([0]), w.ints([-1])]
    return [*found[:len(start)], *[w.emit("Slice", [y, *back]) for y in found[len(start):]]]
