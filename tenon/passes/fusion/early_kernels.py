"""A partition that has yet to grow -> the products in it with which nothing will be merged.

Their code can be made meanwhile.  A product takes in elementwise work in one shape that alone reads its result, and
what such work reads beside it: so one whose result somebody reads for a sum, as a factor, or to join it with something
else, stays as it is, whoever reads it too.
"""

from __future__ import annotations

from tenon.graph.ir import DONATED, UPDATES, Graph, Node, Value
from tenon.ops.graph_calls import fused
from tenon.passes.fusion.fuse_prologues import may_have_prologue
from tenon.passes.fusion.fusion_groups import FusionGroup
from tenon.passes.fusion.fusion_partition import Groups
from tenon.passes.fusion.kernel_bodies import body_of


def settled_products(groups: Groups) -> Graph:
    """The graph of these alone; what others make for them are its parameters, so none of them is donated."""
    nodes = [_node(group, groups) for group in groups.all() if is_settled(group, groups)]
    read = dict.fromkeys(x for node in nodes for x in node.uses())
    made = tuple(x for node in nodes for x in node.outputs)
    notes = {name: note for name, note in groups.graph.notes.items() if name not in (DONATED, UPDATES)}
    return Graph(groups.graph.name, tuple(read), tuple(nodes), made, notes)


def is_settled(group: FusionGroup, groups: Groups) -> bool:
    """Whether the group is a product, and no merge with it will be allowed."""
    if group.kinds == {"attention"}:
        return True
    return group.kinds == {"contraction"} and len(group.nodes) == 1 and not may_have_prologue(groups, group) and any(
        _stays_out(reader) for x in group.results for reader in groups.readers(x))


def _stays_out(reader: FusionGroup) -> bool:
    """Whether the group, and whatever it becomes a part of, is no epilogue of a product."""
    return (reader.kinds != {"map"} or not all(node.op.elementwise for node in reader.nodes)
            or len({node.output.shape for node in reader.nodes}) > 1)


def _node(group: FusionGroup, groups: Groups) -> Node:
    """The node that the group will be."""
    nodes, results = groups.with_views(group)
    if len(nodes) == 1:
        return nodes[0]
    body, outside = body_of(nodes, results)
    made = Node(fused, outside, {"body": body}, (), group.nodes[-1].loc)
    made.outputs = tuple(Value(x.type, made, k) for k, x in enumerate(results))
    return made
