"""Graph -> the same graph with branches and loops made for what is known of their inputs.

A choice that is known leaves its branch, inlined.  Numbers, and tensors filled with one, go into the graphs that read
them.  Two branches that only compute a few scalars are computed both, and chosen from: that is cheaper than a jump.
"""

from __future__ import annotations

from typing import Any

from tenon.graph.build import Builder, call_graph, copy, rebuild
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import copy_nodes, has_effect
from tenon.ops.branches import cond
from tenon.ops.comparison import where
from tenon.ops.control_flow_nodes import BRANCHES, Control, as_values, is_control
from tenon.ops.shape import constant, full_op
from tenon.passes.fold import fold
from tenon.passes.rewriting.nested import nested
from tenon.records import replace

MAX_CHOSEN = 8          # nodes in two branches of scalars that are both computed


@nested
def specialize(graph: Graph) -> Graph:
    """Make branches and loops for what is known of their inputs."""
    if not any(is_control(node) for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> Any:
    if not is_control(node):
        return copy(node, inputs)
    control = with_numbers_inside(Control.of(node, inputs))
    if control.op in BRANCHES and (choice := number(control.choice[0])) is not None:
        return as_values(call_graph(chosen(control, choice), as_values(control.constants)))
    if control.op is cond and is_cheap(control):
        return both(control)
    outputs = control.emit()
    if control.op in BRANCHES:
        return as_values([same_in_all(control, k, x) for k, x in enumerate(outputs)])
    return outputs


# ---------------------------------------------------------------- numbers

def number(x: Input) -> Any:
    """The number that an input is known to be, or None."""
    if isinstance(x, Value) and x.node is not None and x.ndim == 0:
        if x.node.op is constant:
            return x.node.attrs["data"][0]
        if x.node.op is full_op and isinstance(x.node.inputs[0], Literal):
            return x.node.inputs[0].value
    return x.value if isinstance(x, Literal) else None


def filled(x: Input) -> Literal | None:
    """The number that a tensor is filled with, where it is known."""
    if isinstance(x, Value) and x.node is not None and x.node.op is full_op and isinstance(x.node.inputs[0], Literal):
        return x.node.inputs[0]
    return None


def with_numbers_inside(control: Control) -> Control:
    """Constants and sequences that hold one known number, as literals in the graphs."""
    everything = (*control.constants, *control.sequences)
    known = [k for k, x in enumerate(everything) if filled(x) is not None or number(x) is not None]
    if not known:
        return control
    fixed = len(control.constants)

    def inside(graph: Graph) -> Graph:
        constants, _, sequences = control.params(graph)
        own = (*constants, *sequences)
        params = [p for p in graph.params if p not in {own[k] for k in known}]
        builder = Builder(graph.name, [Value(p.type, name=p.name) for p in params], rewriting=True)
        values: dict[Value, Any] = dict(zip(params, builder.params, strict=True))
        with using(builder):
            for k in known:
                values[own[k]] = _inside(everything[k], own[k])
            copy_nodes(graph.nodes, builder, values)
            return fold(builder.finish(as_values([values[r] for r in graph.results])))
    return replace(control, constants=tuple(x for k, x in enumerate(control.constants) if k not in known),
                   sequences=tuple(x for k, x in enumerate(control.sequences) if k + fixed not in known),
                   graphs=tuple(map(inside, control.graphs)))


def _inside(x: Input, param: Value) -> Value | Literal:
    value = filled(x)
    if value is not None:
        return value if not param.shape else full_op(value, shape=param.shape)
    return x if isinstance(x, Literal) else Literal(number(x), param.type)


# ---------------------------------------------------------------- branches

def chosen(control: Control, choice: Any) -> Graph:
    """The branch that a known choice takes."""
    if control.op is cond:
        return control.graphs[0 if choice else 1]
    return control.graphs[min(max(int(choice), 0), len(control.graphs) - 1)]


def is_cheap(control: Control) -> bool:
    """Whether both branches only compute a few scalars, which cannot fail."""
    nodes = [node for graph in control.graphs for node in graph.nodes]
    return len(nodes) <= MAX_CHOSEN and all(r.shape == () for r in control.graphs[0].results) and all(
        node.op.elementwise and node.op.compute is not None and not has_effect(node) and node.output.shape == ()
        and (node.output.dtype.kind in "bf" or (node.op.is_own and not node.op.fails)) for node in nodes)


def both(control: Control) -> tuple[Value, ...]:
    """The results of both branches, chosen from."""
    operands = as_values(control.constants)
    pairs = zip(*(call_graph(graph, operands) for graph in control.graphs), strict=True)
    return tuple(x if x is y else where(control.choice[0], x, y) for x, y in pairs)


def same_in_all(control: Control, k: int, output: Value) -> Input:
    """An operand, where every branch returns it as result k."""
    found = {control.constants[graph.params.index(r)] if (r := graph.results[k]) in graph.params else None
             for graph in control.graphs}
    only = found.pop()
    return output if found or only is None else only
