"""Graph -> nothing, or an error: checks every rule of the representation.  Runs around each pass in tests."""

from __future__ import annotations

from tenon.errors import GraphError, TenonError
from tenon.graph.build import types_of
from tenon.graph.ir import Graph, Node, Value


def verify(graph: Graph) -> Graph:
    """`graph` itself; raises GraphError at the first node that breaks a rule."""
    defined: set[Value] = set()
    for param in graph.params:
        _define(param, defined, graph)
    for node in graph.nodes:
        for value in node.uses():
            if value not in defined:
                raise _broken(graph, node, "reads a value before it is made, or from another graph")
        _check_types(graph, node)
        for output in node.outputs:
            if output.node is not node:
                raise _broken(graph, node, "does not own its output")
            _define(output, defined, graph)
        for body in node.graphs:
            verify(body)
    if missing := [r for r in graph.results if r not in defined]:
        raise GraphError(f"{graph.name}: a result of type {missing[0].type} is made nowhere in the graph")
    return graph


def _define(value: Value, defined: set[Value], graph: Graph) -> None:
    if value in defined:
        raise GraphError(f"{graph.name}: the value {value!r} is defined twice")
    defined.add(value)


def _check_types(graph: Graph, node: Node) -> None:
    try:
        inferred = node.op.type(*types_of(node.inputs), **node.attrs)
    except TenonError as error:
        raise _broken(graph, node, error.what) from None
    except TypeError as error:
        raise _broken(graph, node, str(error)) from None
    expected = inferred if isinstance(inferred, tuple) else (inferred,)
    stated = tuple(x.type for x in node.outputs)
    if expected != stated:
        raise _broken(graph, node, f"states {', '.join(map(str, stated))}, its rule gives "
                                   f"{', '.join(map(str, expected))}")


def _broken(graph: Graph, node: Node, problem: str) -> GraphError:
    return GraphError(f"{graph.name}: {node.op.name} {problem}", where=node.loc)
