"""Graph <-> plain data for JSON: as exact as the text form, ten times faster to read, and equal sub-graphs once.

    record = {"types": [text...], "attributes": [text...], "graphs": [graph...], "keys": [key or null, a graph...],
              "places": places of the last graph}
    graph  = [name, parameters, nodes, results]                 parameters: [name, type]
    node   = [operator, inputs, attributes, output types, after]

Types and attributes are numbers of texts, sub-graphs numbers of graphs.  Values are numbered in each graph, parameters
first.  An input is such a number, null, or [literal, type]; an attribute [name, text, null] or [name, null, graph].
Places say where nodes come from in the user's program: a number a node, or [number, places of its sub-graphs...].
They stand beside the graphs, not in them, so that equal layers are one graph.  Kernels' bodies have their `key_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.errors import Location
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import OPS
from tenon.graph.partition import all_nodes
from tenon.graph.text import attribute_text, key_of, parse_attribute, parse_type

Place = Location | None
Data = Any              # what JSON can hold
KERNEL = "fused"        # the operator whose sub-graph is the body of a kernel


def places_of(graph: Graph) -> tuple[list[Place], list[int]]:
    """(the distinct places of a graph's nodes, which of them every node has), nodes of sub-graphs before their own."""
    numbers: dict[Place, int] = {}
    listed = [numbers.setdefault(node.loc, len(numbers)) for node in all_nodes(graph)]
    return list(numbers), listed


# ---------------------------------------------------------------- writing

def record_of(graph: Graph, places: Sequence[Place]) -> Data:
    """The graph as plain data.

    Raises GraphError where an attribute has no text form, and KeyError where a node comes from none of the places.
    """
    writer = _JsonWriter(places)
    _, of_nodes = writer.graph(graph)
    return {"types": list(writer.types), "attributes": list(writer.attributes), "graphs": writer.graphs,
            "keys": [writer.keys.get(number) for number in range(len(writer.graphs))], "places": of_nodes}


class _JsonWriter:
    """Numbers what it writes, so that equal things are written once."""

    def __init__(self, places: Sequence[Place]):
        self.places = {place: k for k, place in enumerate(places)}
        self.types: dict[str, int] = {}
        self.attributes: dict[str, int] = {}
        self.graphs: list[Data] = []
        self.known: dict[str, int] = {}
        self.keys: dict[int, str] = {}

    def graph(self, graph: Graph) -> tuple[int, list[Data]]:
        """(the number of the graph, the places of its nodes)."""
        made = (x for node in graph.nodes for x in node.outputs)
        values = {x: k for k, x in enumerate((*graph.params, *made))}
        nodes, places = [], []
        for node in graph.nodes:
            inner = {name: self.graph(value) for name, value in node.attrs.items() if isinstance(value, Graph)}
            if node.op.name == KERNEL:
                self.keys.update((number, key_of(node.attrs[name])) for name, (number, _) in inner.items())
            nodes.append(self.node(node, values, {name: number for name, (number, _) in inner.items()}))
            place = self.places[node.loc]
            places.append([place, *(listed for _, listed in inner.values())] if inner else place)
        params = [[p.name, self.number(self.types, str(p.type))] for p in graph.params]
        data = [graph.name, params, nodes, [values[r] for r in graph.results]]
        key = repr(data)
        if key not in self.known:
            self.known[key] = len(self.graphs)
            self.graphs.append(data)
        return self.known[key], places

    def node(self, node: Node, values: Mapping[Value, int], graphs: Mapping[str, int]) -> Data:
        attrs = [[name, None, graphs[name]] if name in graphs
                 else [name, self.number(self.attributes, attribute_text(value)), None]
                 for name, value in node.attrs.items()]
        types = [self.number(self.types, str(x.type)) for x in node.outputs]
        return [node.op.name, [self.input(x, values) for x in node.inputs], attrs, types,
                [values[x] for x in node.after]]

    def input(self, x: Input, values: Mapping[Value, int]) -> Data:
        if isinstance(x, Literal):
            return [self.number(self.attributes, attribute_text(x.value)), self.number(self.types, str(x.type))]
        return None if x is None else values[x]

    def number(self, table: dict[str, int], text: str) -> int:
        return table.setdefault(text, len(table))


# ---------------------------------------------------------------- reading

def graph_of(record: Data, places: Sequence[Place]) -> Graph:
    """The graph that was recorded; its nodes come from these places."""
    return _JsonReader(record, places).graph(len(record["graphs"]) - 1, record["places"])


class _JsonReader:
    def __init__(self, record: Data, places: Sequence[Place]):
        self.places, self.graphs, self.keys = places, record["graphs"], record["keys"]
        self.bodies: dict[tuple[int, str], Graph] = {}
        self.types = [parse_type(text) for text in record["types"]]
        self.attributes = [parse_attribute(text) for text in record["attributes"]]

    def graph(self, number: int, places: Sequence[Data]) -> Graph:
        name, parameters, listed, results = self.graphs[number]
        params = tuple(Value(self.types[type], name=name) for name, type in parameters)
        values = list(params)
        nodes = []
        for data, place in zip(listed, places, strict=True):
            nodes.append(self.node(data, place, values))
            values += nodes[-1].outputs
        return Graph(name, params, tuple(nodes), tuple(values[r] for r in results))

    def body(self, number: int, places: Sequence[Data]) -> Graph:
        """A kernel's body, which no pass looks into any more: equal ones from the same places are one object, so that
        what is derived of it is derived once."""
        key = number, str(places)
        if key not in self.bodies:
            self.bodies[key] = self.graph(number, places)
            key_of.set(self.bodies[key], self.keys[number])
        return self.bodies[key]

    def node(self, data: Data, place: Data, values: Sequence[Value]) -> Node:
        op, inputs, attributes, types, after = data
        inner = iter(())
        if isinstance(place, list):
            place, *rest = place
            inner = iter(rest)
        read = self.body if op == KERNEL else self.graph
        attrs = {name: self.attributes[text] if graph is None else read(graph, next(inner))
                 for name, text, graph in attributes}
        node = Node(OPS[op], tuple([self.input(x, values) for x in inputs]), attrs, (), self.places[place],
                    tuple([values[x] for x in after]))
        node.outputs = tuple([Value(self.types[type], node, k) for k, type in enumerate(types)])
        return node

    def input(self, x: Data, values: Sequence[Value]) -> Input:
        if isinstance(x, list):
            return Literal(self.attributes[x[0]], self.types[x[1]])
        return None if x is None else values[x]
