"""Graph -> the same graph without dead code: nodes, and results of branches and loops.  Effects stay."""

from __future__ import annotations

from tenon.graph.build import Builder, current_builder
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import has_effect, map_graphs, needed
from tenon.ops.control_flow_nodes import Control, is_control
from tenon.passes.prune_control_flow import trimmed
from tenon.records import replace
from tenon.types import TOKEN


def drop_dead(graph: Graph) -> Graph:
    """Remove nodes whose results nobody reads, and the results of branches and loops that nobody reads."""
    if any(node.graphs for node in graph.nodes):
        return _with_trimmed_nodes(graph)
    live = live_nodes(graph)
    if len(live) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(node for node in graph.nodes if node in live))


def live_nodes(graph: Graph) -> set[Node]:
    """The nodes that a result or an effect depends on."""
    return needed(graph, graph.results, has_effect)


def _with_trimmed_nodes(graph: Graph) -> Graph:
    """From the last node to the first, so that what a branch or loop no longer reads is dead in its turn."""
    read: set[Value] = set(graph.results)
    live: dict[Node, tuple[Control, list[int]] | None] = {}
    for node in reversed(graph.nodes):
        outputs = [k for k, x in enumerate(node.outputs) if x in read or (x.type == TOKEN and has_effect(node))]
        if outputs or has_effect(node):
            kept = outputs or [0]       # of what has an effect alone: every node has an output, which is its name
            live[node] = trimmed(Control.of(node), kept, drop_dead) if is_control(node) else None
            control = live[node]
            read.update(node.uses() if control is None else
                        (*(x for x in control[0].inputs if isinstance(x, Value)), *node.after))
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Value, Value] = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        for node in graph.nodes:
            if node in live:
                builder.loc = node.loc
                values.update(_emitted(node, live[node], values))
    return replace(graph, params=tuple(builder.params), nodes=tuple(builder.nodes),
                   results=tuple(values[r] for r in graph.results))


def _emitted(node: Node, part: tuple[Control, list[int]] | None, values: dict[Value, Value]) -> dict[Value, Value]:
    """The node, or what is left of it, on new inputs; its outputs by their old ones."""
    if part is None:
        inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        out = current_builder().emit(node.op, inputs, map_graphs(node.attrs, drop_dead))
        return dict(zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True))
    control, kept = part
    return {node.outputs[k]: x for k, x in zip(kept, control.on(values).emit(), strict=True)}
