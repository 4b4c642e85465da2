"""Graph -> the same graph where loops carry and compute only what changes from one iteration to the next.

A carried value that the body leaves as it is becomes a constant of the loop.  What depends on constants only is
computed before the loop, unless it costs no more than to keep it, or may fail: the loop may have no iteration.
"""

from __future__ import annotations

from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.partition import copy_nodes, depending, has_effect, is_cheap, needed
from tenon.ops.control_flow_nodes import LOOPS, Control, as_values, is_control, substituted
from tenon.passes.rewriting.nested import nested
from tenon.records import replace


@nested
def hoist(graph: Graph) -> Graph:
    """Move out of loops what does not change in them."""
    if not any(is_control(node) for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> object:
    if not is_control(node):
        return copy(node, inputs)
    control = Control.of(node, inputs)
    outputs: dict[int, Input] = {}
    if node.op in LOOPS:
        control, outputs = with_fewer_carried(control)
        control = with_less_work(control)
    made = iter(with_each_constant_once(control).emit())
    return tuple(as_values([outputs[k] if k in outputs else next(made) for k in range(len(node.outputs))]))


def with_fewer_carried(control: Control) -> tuple[Control, dict[int, Input]]:
    """What the body leaves as it is, as constants; and the outputs that are therefore inputs."""
    body = control.bodies[0]
    fixed = [k for k, p in enumerate(control.params(body)[1]) if body.results[k] is p]
    if not fixed or len(fixed) == len(body.results):
        return control, {}
    kept = [k for k in range(len(control.carried)) if k not in fixed]

    def moved(graph: Graph) -> Graph:
        constants, carried, sequences = control.params(graph)
        params = (*constants, *(carried[k] for k in fixed), *(carried[k] for k in kept), *sequences)
        results = graph.results if graph is not body else \
            tuple(r for k, r in enumerate(graph.results) if k not in fixed)
        return replace(graph, params=params, results=results)
    changed = replace(control, constants=(*control.constants, *(control.carried[k] for k in fixed)),
                      carried=tuple(control.carried[k] for k in kept), graphs=tuple(map(moved, control.graphs)))
    return changed, {k: control.carried[k] for k in fixed}


def with_less_work(control: Control) -> Control:
    """What depends on constants only, computed now in the current builder."""
    first = len(control.constants)
    made = [_computed_before(graph, control) for graph in control.graphs]
    if not any(made):
        return control
    more = [Value(x.type) for group in made for x in group]
    new = iter(more)
    graphs = []
    for graph, group in zip(control.graphs, made, strict=True):
        params = (*graph.params[:first], *more, *graph.params[first:])
        graphs.append(substituted(graph, params, {x: next(new) for x in group}))
    outside = (value for group in made for value in group.values())
    return replace(control, constants=(*control.constants, *outside), graphs=tuple(graphs))


def _computed_before(graph: Graph, control: Control) -> dict[Value, Value]:
    """Values of a graph of the loop that are computed in the current builder, and what they are there."""
    early = invariant(graph, control)
    values: dict[Value, Value] = dict(zip(graph.params, as_values(control.constants), strict=False)) if early else {}
    copy_nodes((node for node in graph.nodes if node in early), current_builder(), values)
    read = {x for node in graph.nodes if node not in early for x in node.uses()}.union(graph.results)
    return {x: values[x] for node in graph.nodes if node in early for x in node.outputs if x in read}


def invariant(graph: Graph, control: Control) -> set[Node]:
    """The nodes to be computed before the loop: those worth it, and what they need."""
    constants, carried, sequences = control.params(graph)
    varying = depending(graph, (*carried, *sequences))
    fixed = [node for node in graph.nodes if varying.isdisjoint(node.outputs) and node.outputs and not has_effect(node)]
    movable: set[Value] = set(constants)
    for node in fixed:
        if cannot_fail(node) and all(x in movable for x in node.uses()):
            movable.update(node.outputs)
    worth = [x for node in fixed if not is_cheap(node) for x in node.outputs if x in movable]
    return needed(graph, worth) if worth else set()


def cannot_fail(node: Node) -> bool:
    """Whether the node computes something whatever its inputs hold: it reads no indices, and is no step of NumPy."""
    return not node.graphs and not node.op.is_host and \
        not any(x is not None and x.type.dtype.kind in "uis" for x in node.inputs)


def with_each_constant_once(control: Control) -> Control:
    """Inputs that are the same, as one."""
    first: dict[Input, int] = {}
    for k, x in enumerate(control.constants):
        first.setdefault(x, k)
    if len(first) == len(control.constants):
        return control

    def merged(graph: Graph) -> Graph:
        own = graph.params[:len(control.constants)]
        params = (*(own[k] for k in first.values()), *graph.params[len(own):])
        return substituted(graph, params, {p: own[first[x]] for p, x in zip(own, control.constants, strict=True)})
    return replace(control, constants=tuple(first), graphs=tuple(map(merged, control.graphs)))
