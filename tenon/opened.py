"""A composite operator whose gradient is recorded -> its operators, called one after the other, each on the tape.

    y = x.var()         # x requires a gradient: a cast, a sum, a quotient ... each leaves its node for `backward`

What the definition does in Python (arguments, promotion, shapes) is done once, when it is written down for inputs of
these types; the tape is that of the definition.  Only calls of Tenon's own operators on tensors are written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dataclasses import dataclass
from tenon.graph.build import call_graph, copy, expansion, rebuild, types_of
from tenon.graph.ir import Graph, Literal, Node, Value, graphs_in
from tenon.graph.op import OPS, Op
from tenon.recipes import promised
from tenon.tape import TapeNode, linked, saved_as
from tenon.tensor import Tensor, fresh
from tenon.types import TensorType

Runner = Callable[[Op, Sequence[TensorType | None], Sequence[TensorType], Mapping[str, Any]], Callable[..., Any] | None]
MOST_NODES = 64         # of a definition: a longer one is worth little beside what its operators do


@dataclass(frozen=True, eq=False)
class Step:
    """One operator: how arrays are computed, and where its inputs stand; a number is held as the tape has it."""

    op: Op
    run: Callable[..., Any]
    places: tuple[Any, ...]             # a place among the values, a literal, or None
    numbers: tuple[Any, ...]            # the arrays of the literals
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]


class Opened:
    """The steps; `run` may be called by several threads at once."""

    def __init__(self, steps: Sequence[Step], results: Sequence[int]):
        self.steps, self.results = tuple(steps), tuple(results)

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The outputs, one or a tuple, on tensors of the types it was written for."""
        values: list[Tensor] = list(tensors)
        for step in self.steps:
            inputs = [values[k] if type(k) is int else k for k in step.places]
            arrays = [x.own.payload if isinstance(x, Tensor) else number
                      for x, number in zip(inputs, step.numbers, strict=True)]
            out = step.run(*arrays)
            payloads = tuple(map(promised, out if len(step.types) > 1 else (out,), step.types))
            if any(isinstance(x, Tensor) and x.own.requires_grad for x in inputs):
                kept = tuple([saved_as(x, x.own) if isinstance(x, Tensor) else x for x in inputs])
                node = TapeNode(step.op, kept, step.attrs, payloads)
                values += [linked(payload, node, k) for k, payload in enumerate(payloads)]
            else:
                values += map(fresh, payloads)
        found = tuple([values[k] for k in self.results])
        return found if len(found) > 1 else found[0]


def opened(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any], runner: Runner) -> Opened | None:
    """The steps of a composite on inputs of these types; None where only its definition tells what it does."""
    graph = _whole(expansion(op, tuple(types), attrs))
    if len(graph.nodes) > MOST_NODES or any(_is_special(node) for node in graph.nodes):
        return None
    places: dict[Value, int] = {p: k for k, p in enumerate(graph.params)}
    steps = []
    for node in graph.nodes:
        outputs = tuple(x.type for x in node.outputs)
        run = runner(node.op, types_of(node.inputs), outputs, node.attrs)
        if run is None:
            return None
        steps.append(Step(node.op, run, tuple([places[x] if isinstance(x, Value) else x for x in node.inputs]),
                          tuple([_number(x) for x in node.inputs]), node.attrs, outputs))
        places.update(zip(node.outputs, range(len(places), len(places) + len(outputs)), strict=True))
    return Opened(steps, [places[r] for r in graph.results])


def _whole(graph: Graph) -> Graph:
    """The graph with the composites opened that have no rule of gradients, without casts that change nothing."""
    def visit(node: Node, inputs: tuple[Any, ...]) -> Any:
        if node.op is OPS["cast"] and node.output.type == inputs[0].type and node.output not in graph.results:
            return inputs[0]
        if node.op.expand is None or node.op.vjp is not None:
            return copy(node, inputs)
        inner = _whole(expansion(node.op, types_of(inputs), node.attrs))
        return call_graph(inner, [x for x in inputs if x is not None])
    return rebuild(graph, visit)


def _is_special(node: Node) -> bool:
    """Whether a call is more than its operator on arrays."""
    return (node.op.effect or node.op.data_dependent or not node.op.is_own or node.op.name == "call"
            or any(True for value in node.attrs.values() for _ in graphs_in(value)))


def _number(x: Any) -> Any:
    return np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else None
