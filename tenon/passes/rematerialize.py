"""Graph -> the graph in which a value is computed a second time, late, where some nodes read it.

    y = exp(x)                                  y = exp(x)
    s = sum(y)                                  s = sum(y)
    ...                             ->          ...                         y is not in memory here
    z = y * g                                   z = exp(x) * g

The copy is a kernel of its own, or a part of the kernel that reads it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from tenon.graph.ir import Graph, Node, Value
from tenon.ops.graph_calls import fused
from tenon.passes.drop_dead import live_nodes
from tenon.passes.fusion.classify_ops import kind_of
from tenon.passes.fusion.fusion_groups import try_lowering
from tenon.passes.fusion.fusion_partition import MAX_NODES, RENAMES
from tenon.passes.fusion.fusion_profitability import MAX_INPUTS
from tenon.passes.fusion.kernel_bodies import body_of, has_loops
from tenon.records import replace
from tenon.target import GENERIC, Target


def with_copy(graph: Graph, value: Value, until: int, inputs: tuple[Value, ...], body: Graph,
              target: Target = GENERIC) -> Graph:
    """The graph in which nodes from `until` on read a copy of the value, which `body` makes of the inputs."""
    made = Node(fused, inputs, {"body": body}, (), value.node.loc if value.node else None)
    made.outputs = (Value(value.type, made),)
    early, reader, rest = graph.nodes[:until], graph.nodes[until], graph.nodes[until:]
    renamings = _renamings(early, value)
    later = {x for node in rest[1:] for x in node.uses()}
    stored = value in later or any(node.output in later for node in renamings)
    joined = _joined(made, value, reader, stored, target)
    new = {value: made.output}
    if joined is not None:
        made, rest = joined, rest[1:]
        new = dict(zip((*reader.outputs, value), joined.outputs, strict=False))
    late = [_copy(node, new) for node in (*_needed(renamings, rest), *rest)]
    return replace(graph, nodes=(*early, made, *late), results=tuple(new.get(r, r) for r in graph.results))


def _renamings(nodes: Iterable[Node], value: Value) -> list[Node]:
    """Those that give the memory of the value other names, one after the other."""
    names, found = {value}, []
    for node in nodes:
        if node.op in RENAMES and node.inputs[0] in names:
            names.add(node.output)
            found.append(node)
    return found


def _needed(renamings: Sequence[Node], nodes: Iterable[Node]) -> list[Node]:
    """The renamings whose names, or names of whose names, these nodes use."""
    used = {x for node in nodes for x in node.uses()}
    found = []
    for node in reversed(renamings):
        if node.output in used:
            found.append(node)
            used.update(x for x in node.inputs if isinstance(x, Value))
    return found[::-1]


def without_unread(graph: Graph) -> Graph:
    """The graph without the results of kernels that nobody reads any more."""
    read = {x for node in graph.nodes for x in node.uses()}.union(graph.results)
    new: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        kept = [x for x in node.outputs if x in read]
        nodes.append(_copy(_part(node, kept, new), new) if node.op is fused and 0 < len(kept) < len(node.outputs)
                     else _copy(node, new))
    return replace(graph, nodes=tuple(nodes), results=tuple(new.get(r, r) for r in graph.results))


def _part(node: Node, kept: Sequence[Value], new: dict[Value, Value]) -> Node:
    """The kernel that makes these results alone, which `new` learns."""
    inner: Graph = node.attrs["body"]
    results = [inner.results[x.index] for x in kept]
    needed = live_nodes(replace(inner, results=tuple(results)))
    body, outside = body_of([x for x in inner.nodes if x in needed], results)
    outer = dict(zip(inner.params, node.inputs, strict=True))
    made = Node(fused, tuple(outer[p] for p in outside), {"body": body}, (), node.loc)
    made.outputs = tuple(Value(x.type, made, k) for k, x in enumerate(kept))
    new.update(zip(kept, made.outputs, strict=True))
    return made


def _joined(made: Node, value: Value, reader: Node, stored: bool, target: Target) -> Node | None:
    """One kernel for the copy and what reads it first, with the copy as its last result where it is `stored`; None
    where two kernels are better."""
    if value not in reader.uses() or not may_take_in(reader, value):
        return None
    copied, (copy,) = _unfolded(made, {})
    nodes, results = _unfolded(reader, {value: copy})
    body, outside = body_of([*copied, *nodes], [*results, copy] if stored else results)
    if len(body.nodes) > MAX_NODES or len(outside) > MAX_INPUTS:
        return None
    trial, alone = (try_lowering(x, target) for x in (body, kernel_of(reader) or body))
    if trial is None or alone is None or trial.products < alone.products \
            or not (trial.one_nest or (trial.adds_up and alone.adds_up)) \
            or trial.cost > alone.cost + cost_of(kernel_of(made), target):
        return None
    joined = Node(fused, outside, {"body": body}, (), reader.loc)
    joined.outputs = tuple(Value(r.type, joined, k) for k, r in enumerate(body.results))
    return joined


def _unfolded(node: Node, new: dict[Value, Value]) -> tuple[list[Node], list[Value]]:
    """(the nodes that a kernel stands for, what it returns), with other values where `new` says so."""
    inner = kernel_of(node)
    assert inner is not None
    inputs = [new.get(x, x) for x in node.inputs if isinstance(x, Value)]
    inside = dict(zip(inner.params, inputs, strict=True))
    nodes = [_copy(x, inside) for x in inner.nodes]
    return nodes, [inside.get(r, r) for r in inner.results]       # what reads nothing is not copied


def may_take_in(node: Node, value: Value) -> bool:
    """Whether the node is work on elements, sums of them, or a product of others than the value, which it then reads
    element by element."""
    body = kernel_of(node)
    if body is None:
        return False
    values = [x for x in node.inputs if isinstance(x, Value)]
    factors: set[Value] = set()
    for inner in reversed(body.nodes):
        kind = kind_of(inner)
        if kind.name not in ("view", "map", "reduce", "contraction") or kind.checks:
            return False
        if kind.name == "contraction" or not factors.isdisjoint(inner.outputs):
            factors.update(inner.uses())
    return factors.isdisjoint(p for p, x in zip(body.params, values, strict=True) if x is value)


def kernel_of(node: Node) -> Graph | None:
    """What a node computes as a kernel, of its values among the inputs in order; None of what is none."""
    if node.op is fused:
        return cast(Graph, node.attrs["body"])
    return body_of([node], node.outputs)[0] if has_loops(node) else None


def cost_of(body: Graph | None, target: Target) -> float:
    """About how long a kernel takes, in bytes that could be moved; 0 of what is none."""
    trial = None if body is None else try_lowering(body, target)
    return 0.0 if trial is None else trial.cost


def _copy(node: Node, new: dict[Value, Value]) -> Node:
    """The node, or one on new inputs where there are some, whose outputs `new` then learns."""
    inputs = tuple(new.get(x, x) if isinstance(x, Value) else x for x in node.inputs)
    after = tuple(new.get(x, x) for x in node.after)
    if inputs == node.inputs and after == node.after:
        return node
    made = Node(node.op, inputs, node.attrs, (), node.loc, after)
    made.outputs = tuple(Value(x.type, made, k, x.name) for k, x in enumerate(node.outputs))
    new.update(zip(node.outputs, made.outputs, strict=True))
    return made
