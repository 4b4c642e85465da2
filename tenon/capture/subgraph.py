"""A function run within a capture -> a graph of its own, and what it reads of the graph around it.

The function's operators do not become part of the captured program; values that it uses from there become further
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tenon.capture.trace import Capture
from tenon.eager.grad_mode import no_grad
from tenon.errors import CaptureError
from tenon.graph.build import Builder, copy, inline
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.tensor import Tensor
from tenon.types import TensorType


class InnerBuilder(Builder):
    """Keeps its nodes to itself; parameters for outside tensors go to the program around it.

    `apart`: they are not a part of that program either.
    """

    apart = False
    outer: Builder

    def __init__(self, name: str, outer: Builder):
        super().__init__(name)
        self.outer = outer

    def parameter(self, type: TensorType, name: str = "") -> Value:
        """A parameter of the program."""
        return self.outer.parameter(type, name)


def subgraph(capture: Capture, function: Callable[[list[Tensor]], Sequence[Tensor]], types: Sequence[TensorType],
             name: str) -> tuple[Graph, list[Value]]:
    """The graph of `function` on tensors of these types.

    Its parameters are the tensors, then the values of the surrounding program that it reads, which are returned too.
    Raises CaptureError when the function assigns to a tensor from outside.
    """
    params = [Value(type, name=f"x{k}") for k, type in enumerate(types)]
    with recording_into(capture, name) as builder, no_grad():
        results = [x.payload for x in function([Tensor(p) for p in params])]
    own = {output for node in builder.nodes for output in node.outputs}.union(params)
    if any(seen.state.payload in own for seen in capture.seen.values()):
        raise CaptureError(f"{name}: the function assigns to a tensor from outside, which a rule of gradients must not")
    used = dict.fromkeys(x for node in builder.nodes for x in node.uses()) | dict.fromkeys(results)
    free = [x for x in used if isinstance(x, Value) and x not in own]
    return closed(Graph(name, tuple(params), tuple(builder.nodes), tuple(results)), free), free  # type: ignore[arg-type]


def closed(graph: Graph, free: Sequence[Value]) -> Graph:
    """The graph with values of another one made into parameters, behind its own."""
    builder = Builder(graph.name, [Value(x.type, name=x.name) for x in (*graph.params, *free)], rewriting=True)
    replaced = dict(zip((*graph.params, *free), builder.params, strict=True))
    with using(builder):
        inline(graph, builder, replaced, copy)
    return builder.finish([replaced[r] for r in graph.results])


@contextmanager
def recording_into(capture: Capture, name: str) -> Iterator[Builder]:
    """Record the operators of this block apart from the program."""
    outer = capture.builder
    capture.builder = inner = InnerBuilder(name, outer)
    inner.apart = True
    try:
        yield inner
    finally:
        capture.builder = outer
