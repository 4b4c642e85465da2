"""Graph -> the same graph in which only branches and loops hold graphs: what else does is put in the place of its call.

So every node can be on a device of its own, also those of a function that is computed again for its gradient, and of
the gradient of a loop.
"""

from __future__ import annotations

from tenon.autodiff import call
from tenon.graph.build import call_graph, copy, current_builder, expansion, rebuild, types_of
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.partition import map_graphs
from tenon.ops.control_flow_nodes import as_values, is_control


def open_calls(graph: Graph) -> Graph:
    """The graph, and those in it, without calls of graphs."""
    if not any(node.graphs for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> tuple[Value, ...]:
    if not node.graphs:
        out = copy(node, inputs)
    elif node.op.expand is not None and not is_control(node):
        body = open_calls(expansion(node.op, types_of(inputs), node.attrs))
        out = as_values(call_graph(body, [x for x in inputs if x is not None]))
    elif node.op is call:
        out = as_values(call_graph(open_calls(node.attrs["body"]), inputs))
    else:
        out = current_builder().emit(node.op, inputs, map_graphs(node.attrs, open_calls))
    return out if isinstance(out, tuple) else (out,)
