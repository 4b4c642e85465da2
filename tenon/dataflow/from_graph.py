"""Graph -> dataflow: branches become Switch and Merge, loops become Enter, Merge, Switch, NextIteration and Exit.

    cond            every operand goes through a Switch; every result comes out of a Merge
    switch          a chain of such choices, one branch at a time
    while_loop      Enter -> Merge -> condition -> Switch -> Exit, or -> body -> NextIteration -> Merge

A vertex that reads nothing of its branch or iteration (a constant, say) waits for the pivot, a token that is there
exactly when the branch or iteration runs.  A `scan` is a while_loop first (`tenon.passes.lower_scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tenon.dataflow.dataflow_ir import Dataflow, Edge, Primitive, Source, Vertex
from tenon.dataflow.verify_dataflow import verify
from tenon.errors import Location
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import OPS, Op
from tenon.passes.lower_scan import lower_scan
from tenon.types import TensorType, bool_


def to_dataflow(graph: Graph) -> Dataflow:
    """The dataflow form of `graph`: the same function, without sub-graphs; a `scan` is a loop that counts.

    Raises GraphError where an operator with sub-graphs is not control flow.
    """
    graph, lowering = lower_scan(graph), _DataflowLowering()
    params = tuple(lowering.vertex(Primitive.PARAMETER, [], [p.type], {"name": p.name or f"p{k}"})
                   for k, p in enumerate(graph.params))
    results = lowering.graph(graph, [p[0] for p in params])
    return verify(Dataflow(graph.name, params, tuple(lowering.vertices), tuple(map(lowering.edge, results))))


class _DataflowLowering:
    """The vertices so far, and where new ones stand."""

    def __init__(self) -> None:
        self.vertices: list[Vertex] = []
        self.pivot: Edge | None = None          # there is a token here when what is lowered now is to run
        self.ambient: set[Edge] = set()         # constants of loops: there in every iteration, the last half one too
        self.loc: Location | None = None
        self.loops = 0

    def vertex(self, does: Op | Primitive, inputs: Sequence[Source], types: Sequence[TensorType],
               attrs: Mapping[str, Any] | None = None, after: Sequence[Edge] = ()) -> Vertex:
        vertex = Vertex(does, list(inputs), attrs or {}, tuple(types), self.loc, list(after))
        if self.pivot is not None and all(edge in self.ambient for edge in vertex.edges()):
            vertex.after.append(self.pivot)
        self.vertices.append(vertex)
        return vertex

    def edge(self, x: Source) -> Edge:
        """A literal becomes a vertex where a token is needed."""
        assert x is not None
        return self.vertex(Primitive.LITERAL, [x], [x.type])[0] if isinstance(x, Literal) else x

    @contextmanager
    def at(self, pivot: Edge) -> Iterator[None]:
        """What is lowered in this block runs when the pivot has a token."""
        outer, self.pivot = self.pivot, pivot
        try:
            yield
        finally:
            self.pivot = outer

    # ------------------------------------------------------------ graphs and nodes

    def graph(self, graph: Graph, inputs: Sequence[Source]) -> list[Source]:
        """The vertices of a graph's nodes; its results."""
        known: dict[Value, Source] = dict(zip(graph.params, inputs, strict=True))

        def source(x: Input) -> Source:
            return known[x] if isinstance(x, Value) else x
        for node in graph.nodes:
            self.loc = node.loc
            outputs = self.node(node, [source(x) for x in node.inputs], [self.edge(known[x]) for x in node.after])
            known.update(zip(node.outputs, outputs, strict=True))
        return [known[r] for r in graph.results]

    def node(self, node: Node, inputs: list[Source], after: list[Edge]) -> Sequence[Source]:
        lower = CONTROL.get(node.op.name)
        if lower is not None:
            return lower(self, node, inputs)
        if node.op.name == "call":
            return self.graph(node.attrs["body"], inputs)
        vertex = self.vertex(node.op, inputs, [x.type for x in node.outputs], node.attrs, after)
        return [vertex[k] for k in range(len(node.outputs))]

    # ------------------------------------------------------------ branches

    def choose(self, predicate: Edge, operands: Sequence[Source],
               branches: Sequence[Callable[[list[Source]], Sequence[Source]]]) -> list[Source]:
        """The results of `branches[predicate]` on the operands."""
        pivot = self.vertex(Primitive.SWITCH, [predicate, predicate], [predicate.type] * 2)
        switched = [self.vertex(Primitive.SWITCH, [x, predicate], [x.type] * 2) if isinstance(x, Edge) else x
                    for x in operands]
        sides = []
        for k, branch in enumerate(branches):
            with self.at(pivot[k]):
                sides.append([self.edge(r) for r in branch([x[k] if isinstance(x, Vertex) else x for x in switched])])
        merged = [self.vertex(Primitive.MERGE, choices, [choices[0].type]) for choices in zip(*sides, strict=True)]
        return [vertex[0] for vertex in merged]

    def cond(self, node: Node, inputs: list[Source]) -> Sequence[Source]:
        branches = [partial(self.graph, node.attrs[name]) for name in ("false", "true")]
        return self.choose(self.edge(inputs[0]), inputs[1:], branches)

    def switch(self, node: Node, inputs: list[Source]) -> Sequence[Source]:
        return self.chain(self.edge(inputs[0]), inputs[1:], node.attrs["branches"], 0)

    def chain(self, index: Edge, operands: list[Source], branches: Sequence[Graph], first: int) -> list[Source]:
        """Branch `first` where the index is at most that (it is clamped to the branches), else one of the rest."""
        if len(branches) == 1:
            return self.graph(branches[0], operands)
        bound = Literal(first, TensorType(index.type.dtype, ()))
        further = self.vertex(OPS["greater"], [index, bound], [TensorType(bool_, ())])[0]

        def this(xs: list[Source]) -> Sequence[Source]:
            return self.graph(branches[0], xs[1:])

        def later(xs: list[Source]) -> Sequence[Source]:
            return self.chain(self.edge(xs[0]), xs[1:], branches[1:], first + 1)
        return self.choose(further, [index, *operands], [this, later])

    # ------------------------------------------------------------ loops

    def while_loop(self, node: Node, inputs: list[Source]) -> Sequence[Source]:
        frame, count = f"loop{self.loops}", node.attrs["constants"]
        self.loops += 1
        constants = [x if x is None or isinstance(x, Literal) else
                     self.vertex(Primitive.ENTER, [x], [x.type], {"frame": frame, "constant": True})[0]
                     for x in inputs[:count]]
        carried = [self.edge(x) for x in inputs[count:]] or [self.edge(Literal(False, TensorType(bool_, ())))]
        enters = [self.vertex(Primitive.ENTER, [x], [x.type], {"frame": frame})[0] for x in carried]
        merges = [self.vertex(Primitive.MERGE, [x], [x.type]) for x in enters]
        outer = self.ambient
        self.ambient = outer | {x for x in constants if isinstance(x, Edge)}
        state = [m[0] for m in merges][:len(inputs) - count]
        with self.at(merges[0][0]):
            predicate = self.edge(self.graph(node.attrs["condition"], [*constants, *state])[0])
            switches = [self.vertex(Primitive.SWITCH, [m[0], predicate], m.types * 2) for m in merges]
        with self.at(switches[0][1]):
            results = self.graph(node.attrs["body"], [*constants, *(s[1] for s in switches[:len(state)])])
            for merge, result in zip(merges, [*results, *(s[1] for s in switches[len(state):])], strict=True):
                merge.inputs.append(self.vertex(Primitive.NEXT_ITERATION, [self.edge(result)], merge.types)[0])
        self.ambient = outer
        exits = [self.vertex(Primitive.EXIT, [s[0]], s.types[:1]) for s in switches]
        return [e[0] for e in exits[:len(state)]]


CONTROL: dict[str, Callable[[_DataflowLowering, Node, list[Source]], Sequence[Source]]] = {
    "cond": _DataflowLowering.cond, "switch": _DataflowLowering.switch, "while_loop": _DataflowLowering.while_loop}
