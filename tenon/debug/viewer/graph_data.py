"""A graph, pass after pass -> nodes as plain data, each with a number that it keeps as long as it stays the same node.

Passes make new graphs, so which node is which is found again: the same origin, operator, attributes and types.  One
that has other inputs, attributes or types than before is changed, one that stands in another sub-graph is moved.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.debug.node_origins import number_of
from tenon.dims.symbolic_dim import evaluate
from tenon.graph.ir import Graph, Input, Literal, Node, Value, graphs_in
from tenon.graph.text import attribute_text
from tenon.types import TOKEN, TensorType

Data = dict[str, Any]
Place = tuple[Node, str] | None         # the node that a sub-graph belongs to, and by which attribute
LONGEST_TEXT = 160                      # of an attribute


class Numbering:
    """Gives nodes their numbers: one object for all passes of a graph."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.numbers: dict[Node, int] = {}      # of the last graph
        self.within: dict[Node, Node | None] = {}       # the node in whose sub-graph each stands
        self.nodes: dict[int, Data] = {}        # of the last graph, as data
        self.forms: dict[Node, Any] = {}        # of its nodes, exactly
        self._next = 0
        self._bytes: dict[TensorType, int] = {}

    def graph(self, graph: Graph) -> list[Data]:
        """The nodes of a graph, those of sub-graphs behind the node that they belong to."""
        self.passed(graph)
        return list(self.nodes.values())

    def passed(self, graph: Graph) -> Data:
        """What is different in this graph from the last one: nodes that are new, gone, changed and moved."""
        listed = list(all_nodes(graph, None))
        self._find_again(listed)
        before, self.nodes = self.nodes, {}
        origin = {value: (self.numbers[node], k) for node, _ in listed for k, value in enumerate(node.outputs)}
        for g in (graph, *(g for node, _ in listed for g in node.graphs)):
            origin.update((p, (-1, k)) for k, p in enumerate(g.params))
        for node, place in listed:
            data = self._node(node, place, origin)
            self.nodes[data["id"]] = data
        kept = before.keys() & self.nodes.keys()
        moved = [k for k in kept if before[k]["parent"] != self.nodes[k]["parent"]]
        changed = [k for k in kept if before[k] != self.nodes[k] and k not in moved]
        return {"added": [self.nodes[k] for k in self.nodes if k not in before],
                "removed": [k for k in before if k not in self.nodes],
                "changed_nodes": [self.nodes[k] for k in sorted(changed)],
                "moved": [self.nodes[k] for k in sorted(moved)],
                "order": list(self.nodes), "results": [list(origin[r]) for r in graph.results]}

    def _find_again(self, listed: Sequence[tuple[Node, Place]]) -> None:
        """Numbers for the nodes of another graph: of equal nodes in the same place of the last one, then of equal ones
        elsewhere, then of like ones, then new ones."""
        found: dict[Node, int] = {}
        left, within = dict(self.numbers), dict(self.within)
        forms = self.forms | {node: _exact(node) for node, _ in listed if node not in self.forms}
        self.forms = {node: forms[node] for node, _ in listed}
        self.within = {node: None if place is None else place[0] for node, place in listed}
        for form, in_place in ((forms.__getitem__, True), (forms.__getitem__, False), (_alike, False)):
            if len(found) == len(listed):
                break
            waiting: dict[Any, deque[Node]] = defaultdict(deque)
            for node in left:
                outer = within[node]
                waiting[form(node), self.numbers[outer] if in_place and outer else None].append(node)
            for node, _ in listed:
                outer = self.within[node]
                where = found.get(outer, -1) if in_place and outer else None
                if node not in found and (same := waiting.get((form(node), where))):
                    found[node] = left.pop(same.popleft())
        for node, _ in listed:
            if node not in found:
                found[node] = self._next
                self._next += 1
        self.numbers = found

    def _node(self, node: Node, place: Place, origin: Mapping[Value, tuple[int, int]]) -> Data:
        _, _, attrs, types, _ = self.forms[node]
        inner = [(name if single else f"{name}[{k}]", g) for name, value in node.attrs.items()
                 for single in [isinstance(value, Graph)] for k, g in enumerate(graphs_in(value))]
        return {
            "id": self.numbers[node], "op": node.op.name, "origin": number_of(node),
            "parent": None if place is None else [self.numbers[place[0]], place[1]],
            "inputs": [_input(x, origin) for x in node.inputs], "attrs": dict(attrs),
            "types": list(types), "bytes": [self._bytes_of(x.type) for x in node.outputs],
            "after": sorted({origin[x][0] for x in node.after if x in origin}),
            "graphs": {name: {"params": [{"name": p.name, "type": str(p.type)} for p in g.params],
                              "results": [list(origin[r]) for r in g.results]} for name, g in inner}}

    def _bytes_of(self, type: TensorType) -> int:
        if type not in self._bytes:
            self._bytes[type] = bytes_of(type, self.sizes)
        return self._bytes[type]


def all_nodes(graph: Graph, place: Place) -> Iterator[tuple[Node, Place]]:
    """Every node with the place of the sub-graph that it stands in, a node before those inside of it."""
    for node in graph.nodes:
        yield node, place
        for name, value in node.attrs.items():
            for k, inner in enumerate(graphs_in(value)):
                yield from all_nodes(inner, (node, name if isinstance(value, Graph) else f"{name}[{k}]"))


def bytes_of(type: TensorType, sizes: Mapping[str, int]) -> int:
    """How much memory a value takes."""
    if type == TOKEN:
        return 0
    try:
        return int(evaluate(type.size, sizes)) * type.dtype.itemsize
    except KeyError:        # a size that the data decide
        return 0


def _exact(node: Node) -> Any:
    attrs = tuple((name, _short(value)) for name, value in node.attrs.items() if not graphs_in(value))
    inner = tuple(number_of(x) for graph in node.graphs for x in graph.nodes)       # tells kernels apart
    return number_of(node), node.op.name, attrs, tuple(str(x.type) for x in node.outputs), inner


def _alike(node: Node) -> Any:
    return number_of(node), node.op.name


def _short(value: Any) -> str:
    text = attribute_text(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def _input(x: Input, origin: Mapping[Value, tuple[int, int]]) -> Any:
    """[node, which output], [-1, which parameter], the text of a literal, or None."""
    if x is None:
        return None
    return f"{x.value!r}" if isinstance(x, Literal) else list(origin[x])
