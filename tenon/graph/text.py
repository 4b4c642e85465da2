"""Graph -> text.  The text form is Python syntax, and is also the saved form: it parses back to an equal graph.

    def step(x: f32[B, 784], w: f32[784, 10]):
        v0: f32[B, 10] = matmul(x, w)                    # train.py:14
        v1: tuple[f32[B, 2], i64[B, 2]] = topk(v0, k=2, axis=1)
        return v1[0], v1[1]

A value on another device than the first says so: `f32[B, 10] @ cpu:1`.  A literal has the type of the first value among
its node's inputs, unless written `f64(1.0)`.  Sub-graphs are nested functions, named by the attribute that holds them.
`tenon.graph.parse` reads it.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.devices import HOST, Device
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import DeviceError, GraphError
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Literal, Node, Value, graphs_in
from tenon.graph.parse import (
    RESERVED,
    Example,
    parse_attribute,
    parse_example,
    parse_graph,
    parse_type,
)
from tenon.graph.value_devices import ANYWHERE, devices_of, speaks_of_devices
from tenon.types import DType

__all__ = ["Example", "attribute_text", "key_of", "key_of_nodes", "parse_attribute", "parse_example", "parse_graph",
           "parse_type", "print_graph", "value_names"]

INDENT = "    "
_WRITTEN_AS_IN_PYTHON = frozenset({int, bool, float, str, type(None)})


def print_graph(graph: Graph, locations: bool = True) -> str:
    """The text of `graph`; `locations` adds the user's line to every node."""
    try:
        places = devices_of(graph) if speaks_of_devices(graph) else {}
    except DeviceError:         # which `verify` tells
        places = {}
    return "\n".join(_lines(graph, graph.name if is_name(graph.name) else "graph", "", locations, places))


@once_a_graph
def key_of(body: Graph) -> str:
    """Equal for bodies that are one kernel: a digest of what the text says, without names and places."""
    if any(node.graphs or node.after for node in body.nodes):
        text = print_graph(Graph("kernel", body.params, body.nodes, body.results), locations=False)
        return hashlib.sha256(text.encode()).hexdigest()
    return key_of_nodes(body.params, body.nodes, body.results)


def key_of_nodes(params: Sequence[Value], nodes: Sequence[Node], results: Sequence[Value]) -> str:
    """The key of the body that these nodes would be, which hold no graphs and wait for none."""
    return hashlib.sha256("\n".join(_brief_lines(params, nodes, results)).encode()).hexdigest()


def _brief_lines(params: Sequence[Value], nodes: Sequence[Node], results: Sequence[Value]) -> Iterator[str]:
    """What the text says, in less time than it takes to make it text to be read."""
    names: dict[Value, str] = {}
    for p in params:
        names[p] = f"p{len(names)}"
        yield str(p.type)
    for node in nodes:
        inputs = ",".join([names[x] if isinstance(x, Value) else _literal(x, node) for x in node.inputs])
        attrs = ",".join([f"{name}={attribute_text(value)}" for name, value in node.attrs.items()])
        for x in node.outputs:
            names[x] = f"v{len(names)}"
        yield f"{','.join([str(x.type) for x in node.outputs])}={node.op.name}({inputs};{attrs})"
    yield ",".join([names[r] for r in results])


def _lines(graph: Graph, title: str, indent: str, locations: bool,
           places: Mapping[Value, Device | None]) -> Iterator[str]:
    names = value_names(graph)
    params = ", ".join(f"{names[p]}: {_type(p, places)}" for p in graph.params)
    yield f"{indent}def {title}({params}):"
    inner, taken = indent + INDENT, set(names.values())
    for node in graph.nodes:
        titles: dict[Graph, str] = {}
        for attribute, value in node.attrs.items():
            for body in graphs_in(value):
                if body not in titles:
                    titles[body] = _unused(body.name if is_name(body.name) else attribute, taken)
                    yield from _lines(body, titles[body], inner, locations, places)
        comment = f"  # {node.loc}" if node.loc and locations else ""
        yield f"{inner}{_left(node, names, places)} = {_call(node, names, titles)}{comment}"
    yield f"{inner}return {', '.join(names[r] for r in graph.results)}".rstrip()


def value_names(graph: Graph) -> dict[Value, str]:
    """The name of every value in the text form."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for k, param in enumerate(graph.params):
        wanted = param.name if is_name(param.name) else f"p{k}"
        names[param] = _unused(wanted, taken)
    number = 0
    for node in graph.nodes:
        while (base := f"v{number}") in taken:
            number += 1
        number += 1
        if len(node.outputs) == 1:
            names[node.outputs[0]] = base
        else:
            names.update((x, f"{base}[{x.index}]") for x in node.outputs)
    return names


def is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _unused(wanted: str, taken: set[str]) -> str:
    name, k = wanted, 0
    while name in taken or name in RESERVED:
        k += 1
        name = f"{wanted}_{k}"
    taken.add(name)
    return name


def _left(node: Node, names: Mapping[Value, str], places: Mapping[Value, Device | None]) -> str:
    if len(node.outputs) == 1:
        made = node.outputs[0]
        return f"{names[made]}: {_type(made, places)}"
    base = names[node.outputs[0]].partition("[")[0]
    return f"{base}: tuple[{', '.join(_type(x, places) for x in node.outputs)}]"


def _type(x: Value, places: Mapping[Value, Device | None]) -> str:
    device = places.get(x, HOST)
    if device is None and x.node is None:
        return f"{x.type} @ {ANYWHERE}"
    return str(x.type) if device is None or device is HOST else f"{x.type} @ {device}"


def _call(node: Node, names: Mapping[Value, str], titles: Mapping[Graph, str]) -> str:
    args = [names[x] if isinstance(x, Value) else _literal(x, node) for x in node.inputs]
    args += [f"{name}={attribute_text(value, titles)}" for name, value in node.attrs.items()]
    if node.after:
        args.append(f"after=[{', '.join(names[x] for x in node.after)}]")
    return f"{node.op.name}({', '.join(args)})"


def _literal(x: Literal | None, node: Node) -> str:
    if x is None:
        return "None"
    natural = next((y.dtype for y in node.inputs if isinstance(y, Value)), None)
    return repr(x.value) if x.dtype is natural else f"{x.dtype.short}({x.value!r})"


def attribute_text(value: Any, titles: Mapping[Graph, str] | None = None) -> str:
    """What an attribute is written as; raises GraphError for what has no text form."""
    if type(value) in _WRITTEN_AS_IN_PYTHON or (type(value) is tuple and all(type(x) is int for x in value)):
        return repr(value)          # nearly all
    match value:
        case Graph() if titles is not None:
            return titles[value]
        case DType():
            return value.short
        case tuple():
            return f"({', '.join(attribute_text(x, titles) for x in value)}{',' * (len(value) == 1)})"
        case None | bool() | int() | float() | complex() | str() | SymbolicDim():
            return repr(value)
    raise GraphError(f"an attribute of type {type(value).__name__} has no text form: {value!r}")
