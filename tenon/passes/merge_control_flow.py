"""Graph -> the same graph where a branch or loop is run once for all that is computed of it.

A gradient runs its loop again for what must be kept of every iteration (`tenon.ops.loops`).  Where that second loop
starts from the same inputs, and goes on as long, the two are one loop with the results of both.  Values that both carry
and start alike are supposed to be the same, and found to be by merging duplicates in a body that does the work of both.
Where several start alike, as all states of a cell do, the first of one and the first of the other are tried first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.graph.build import Builder, call_graph
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import copy_nodes, has_effect
from tenon.ops.control_flow_nodes import Control, is_control
from tenon.ops.loops import scan, while_loop
from tenon.passes.merge_duplicates import merge_duplicates
from tenon.passes.rewriting.nested import nested
from tenon.records import dataclass, replace


@dataclass(frozen=True)
class Merged:
    """One node for two: where the outputs of each are among its own."""

    control: Control
    outputs: tuple[tuple[int, ...], tuple[int, ...]]


@nested
def merge_control_flow(graph: Graph) -> Graph:
    """Run branches and loops on the same inputs once."""
    pair = _pair(graph)
    while pair is not None:
        graph = _with_one_node(graph, *pair)
        pair = _pair(graph)
    return graph


def _with_one_node(graph: Graph, node: Node, other: Node, merged: Merged) -> Graph:
    """The graph with one node in the place of the earlier one."""
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Value, Value] = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        for each in graph.nodes:
            if each is node:
                copy_nodes(_made_of_nothing(other), builder, values)
                builder.loc = node.loc
                out = merged.control.on(values).emit()
                for one, places in zip((node, other), merged.outputs, strict=True):
                    values.update(zip(one.outputs, (out[k] for k in places), strict=True))
            elif each is not other and not values.keys() >= set(each.outputs):
                copy_nodes([each], builder, values)
    return replace(graph, params=tuple(builder.params), nodes=tuple(builder.nodes),
                   results=tuple(values[r] for r in graph.results))


def _pair(graph: Graph) -> tuple[Node, Node, Merged] | None:
    """An earlier and a later node that can be one."""
    place = {x: k for k, node in enumerate(graph.nodes) for x in node.outputs}
    nodes = [node for node in graph.nodes if is_control(node) and node.outputs]     # else it only has effects
    for k, node in enumerate(nodes):
        for other in nodes[k + 1:]:
            again = {x for each in _made_of_nothing(other) for x in each.outputs}
            known = all(x in again or place.get(x, -1) < place[node.output] for x in other.uses())
            if other.op is node.op and known and not has_effect(other):     # it would come before others' effects
                merged = _merged(Control.of(node), Control.of(other))
                if merged is not None:
                    return node, other, merged
    return None


def _made_of_nothing(node: Node) -> list[Node]:
    """The nodes without inputs, such as an empty stack, whose outputs a node reads."""
    return [x.node for x in node.inputs if isinstance(x, Value) and x.node is not None and not x.node.inputs
            and not has_effect(x.node)]


def _merged(a: Control, b: Control) -> Merged | None:
    """One node for two; None where they do not go together, or have nothing in common."""
    if a.choice != b.choice or a.rest != b.rest or len(a.graphs) != len(b.graphs):
        return None
    likely = [_alike(a.carried, b.carried, j) for j in range(len(b.carried))]
    while True:
        twins = {j: found[0] for j, found in enumerate(likely) if found}
        union = _Union(a, b, twins)
        graphs = [union.both(f, g) for f, g in zip(a.graphs, b.graphs, strict=True)]
        body, first = graphs[-1].results, len(a.bodies[0].results)
        differ = [j for j, i in twins.items() if body[first + j] is not body[i]]
        if not differ:
            break
        for j in differ:
            del likely[j][0]
    if a.op is while_loop:
        if graphs[0].results[0] is not graphs[0].results[1]:
            return None
        graphs[0] = replace(graphs[0], results=graphs[0].results[:1])
    if a.op is scan and len(graphs[-1].nodes) == len(a.bodies[0].nodes) + len(b.bodies[0].nodes):
        return None
    return union.node(graphs)


def _alike(a: Sequence[Input], b: Sequence[Input], j: int) -> list[int]:
    """Places in a of what b has at j, the likeliest first: the first that starts so in each, then the second."""
    places, rank = [i for i, x in enumerate(a) if x == b[j]], b[:j].count(b[j])
    return [i for _, i in sorted(enumerate(places), key=lambda found: abs(found[0] - rank))]


class _Union:
    """The inputs of two nodes, each once; values that both carry and compute alike, the `twins`, are carried once."""

    def __init__(self, a: Control, b: Control, twins: dict[int, int]):
        self.a, self.b, self.twins = a, b, twins
        self.constants = list(dict.fromkeys((*a.constants, *b.constants)))
        self.own = [j for j in range(len(b.carried)) if j not in twins]
        self.carried = [*a.carried, *(b.carried[j] for j in self.own)]
        self.sequences = list(dict.fromkeys((*a.sequences, *b.sequences)))

    def both(self, f: Graph, g: Graph) -> Graph:
        """The results of a graph of each, on the parameters of the union."""
        builder = Builder(f.name, rewriting=True)
        slices = {x: p.type for c, graph in ((self.a, f), (self.b, g))
                  for x, p in zip(c.sequences, c.params(graph)[2], strict=True)}
        constants = {x: builder.parameter(x.type) for x in self.constants if x is not None}
        carried = [builder.parameter(x.type) for x in self.carried if x is not None]
        sequences = {x: builder.parameter(slices[x]) for x in self.sequences}

        def results(c: Control, graph: Graph, states: list[Value]) -> tuple[Value, ...]:
            return call_graph(graph, [*(constants[x] for x in c.constants if x is not None), *states,
                                      *(sequences[x] for x in c.sequences)])
        count = len(self.a.carried)
        of_b = [carried[self.twins[j] if j in self.twins else count + self.own.index(j)]
                for j in range(len(self.b.carried))]
        with using(builder):
            return merge_duplicates(builder.finish((*results(self.a, f, carried[:count]), *results(self.b, g, of_b))))

    def node(self, graphs: Sequence[Graph]) -> Merged:
        """The node, on graphs that return the results of both; equal results are one."""
        first, count = len(self.a.bodies[0].results), len(self.a.carried)
        bodies = graphs[-len(self.a.bodies):]
        carried = [*range(count), *(first + j for j in self.own)]
        places: dict[tuple[Value, ...], int] = {}
        kept = list(carried)
        at = {k: n for n, k in enumerate(carried)} | {first + j: i for j, i in self.twins.items()}
        for k in range(len(bodies[0].results)):
            column = tuple(graph.results[k] for graph in bodies)
            if k not in at:
                if column not in places:
                    places[column] = len(kept)
                    kept.append(k)
                at[k] = places[column]
        new = [replace(graph, results=tuple(graph.results[k] for k in kept)) if graph in bodies else graph
               for graph in graphs]
        control = replace(self.a, constants=tuple(self.constants), carried=tuple(self.carried),
                          sequences=tuple(self.sequences), graphs=tuple(new))
        return Merged(control, (tuple(at[k] for k in range(first)),
                                tuple(at[k] for k in range(first, len(bodies[0].results)))))
