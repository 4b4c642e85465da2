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
from tenon.eager.recipes import promised
from tenon.eager.tape import TapeNode, linked, saved_as
from tenon.graph.build import call_graph, copy, expansion, rebuild, types_of
from tenon.graph.ir import Graph, Literal, Node, Value, graphs_in
from tenon.graph.op import OPS, Op
from tenon.tensor import Tensor, fresh
from tenon.types import TensorType

Runner = Callable[[Op, Sequence[TensorType | None], Sequence[TensorType], Mapping[str, Any]], Callable[..., Any] | None]
MOST_NODES = 64         # of a definition: a longer one is worth little beside what its operators do


@dataclass(frozen=True, eq=False)
class Step:
    """One operator: how arrays are computed, where its inputs stand, and what the tape holds of them."""

    op: Op
    run: Callable[..., Any]
    places: tuple[int, ...]
    inputs: tuple[Any, ...]             # a place, a literal, or None
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]


class Opened:
    """The steps; `run` may be called by several threads at once.

    Values stand in one row: the inputs, the numbers, and what the steps give.
    """

    def __init__(self, numbers: Sequence[Any], steps: Sequence[Step], results: Sequence[int]):
        self.numbers, self.steps, self.results = tuple(numbers), tuple(steps), tuple(results)

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The outputs, one or a tuple, on tensors of the types it was written for."""
        values: list[Any] = [*[x.own.payload for x in tensors], *self.numbers]
        on_tape = {k: x for k, x in enumerate(tensors) if x.own.requires_grad}
        for step in self.steps:
            out = step.run(*[values[k] for k in step.places])
            payloads = tuple(map(promised, out if len(step.types) > 1 else (out,), step.types))
            if not on_tape.keys().isdisjoint(step.places):
                inputs = tuple([_saved(x, values, on_tape) if type(x) is int else x for x in step.inputs])
                node = TapeNode(step.op, inputs, step.attrs, payloads)
                for k, payload in enumerate(payloads):
                    on_tape[len(values) + k] = linked(payload, node, k)
            values += payloads
        found = tuple([tensors[k] if k < len(tensors) else on_tape[k] if k in on_tape else fresh(values[k])
                       for k in self.results])
        return found if len(found) > 1 else found[0]


def _saved(k: int, values: Sequence[Any], on_tape: Mapping[int, Tensor]) -> Tensor:
    """The value at a place as an input of a recorded call."""
    x = on_tape[k] if k in on_tape else fresh(values[k])
    return saved_as(x, x.own)


def opened(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any], runner: Runner) -> Opened | None:
    """The steps of a composite on inputs of these types; None where only its definition tells what it does."""
    graph = _whole(expansion(op, tuple(types), attrs))
    if len(graph.nodes) > MOST_NODES or any(_is_special(node) for node in graph.nodes):
        return None
    places: dict[Value, int] = {p: k for k, p in enumerate(graph.params)}
    literals = [x for node in graph.nodes for x in node.inputs if not isinstance(x, Value)]
    numbers, steps = [_number(x) for x in literals], []
    following, end = len(places), len(places) + len(numbers)
    for node in graph.nodes:
        outputs = tuple(x.type for x in node.outputs)
        run = runner(node.op, types_of(node.inputs), outputs, node.attrs)
        if run is None:
            return None
        given = []
        for x in node.inputs:
            given.append(places[x] if isinstance(x, Value) else following)
            following += not isinstance(x, Value)
        inputs = tuple([places[x] if isinstance(x, Value) else x for x in node.inputs])
        steps.append(Step(node.op, run, tuple(given), inputs, node.attrs, outputs))
        places.update(zip(node.outputs, range(end, end + len(outputs)), strict=True))
        end += len(outputs)
    return Opened(numbers, steps, [places[r] for r in graph.results])


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
