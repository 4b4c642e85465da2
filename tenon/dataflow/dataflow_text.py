"""Dataflow <-> text: the grammar of graphs, where an edge that leads back names a later line.

    def halve(x: f32):
        v0: f32 = Enter(x, frame='loop0', constant=False)
        v1: f32 = Merge(v0, v4)
        v2: bool = greater(v1, 1.0)
        v3: tuple[f32, f32] = Switch(v1, v2)
        v4: f32 = NextIteration(v5)
        v5: f32 = multiply(v3[1], 0.5)
        v6: f32 = Exit(v3[0])
        return v6
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tenon.dataflow.dataflow_ir import Dataflow, Edge, Primitive, Source, Vertex
from tenon.dataflow.verify_dataflow import verify
from tenon.graph.op import OPS, Op
from tenon.graph.parse import Parser, syntax_of
from tenon.graph.text import attribute_text, is_name

PRIMITIVES = {p.value: p for p in Primitive if p is not Primitive.PARAMETER}
Vertices = Mapping[str, Vertex]


def print_dataflow(flow: Dataflow) -> str:
    """One line a vertex."""
    names = {vertex: f"v{k}" for k, vertex in enumerate(v for v in flow.vertices if v not in flow.params)}
    names.update((p, p.attrs["name"]) for p in flow.params)
    params = ", ".join(f"{names[p]}: {p.types[0]}" for p in flow.params)
    lines = [f"    {_line(vertex, names)}" for vertex in flow.vertices if vertex not in flow.params]
    results = ", ".join(_edge(e, names) for e in flow.results)
    name = flow.name if is_name(flow.name) else "dataflow"
    return "\n".join([f"def {name}({params}):", *lines, f"    return {results}".rstrip()])


def _line(vertex: Vertex, names: Mapping[Vertex, str]) -> str:
    types = ", ".join(map(str, vertex.types))
    typed = types if len(vertex.types) == 1 else f"tuple[{types}]"
    args = [_edge(x, names) if isinstance(x, Edge) else "None" if x is None else f"{x.dtype.short}({x.value!r})"
            for x in vertex.inputs]
    args += [f"{name}={attribute_text(value)}" for name, value in vertex.attrs.items()]
    args += [f"after=[{', '.join(_edge(e, names) for e in vertex.after)}]"] if vertex.after else []
    place = f"  # {vertex.loc}" if vertex.loc else ""
    return f"{names[vertex]}: {typed} = {vertex.name}({', '.join(args)}){place}"


def _edge(edge: Edge, names: Mapping[Vertex, str]) -> str:
    name = names[edge.vertex]
    return name if len(edge.vertex.types) == 1 else f"{name}[{edge.output}]"


def parse_dataflow(text: str) -> Dataflow:
    """The dataflow that a text describes, verified; raises GraphError naming the line that is not understood."""
    parser = _Parser(text)
    tree = syntax_of(text, "the text of a dataflow")
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise parser.error(tree.body[-1] if tree.body else tree, "the text of a dataflow is one function definition")
    return verify(parser.flow(tree.body[0]))


class _Parser(Parser):
    def flow(self, definition: ast.FunctionDef) -> Dataflow:
        found: dict[str, Vertex] = {}
        for p in self.parameters(definition):
            self.claim(p.arg, definition, found, {})
            found[p.arg] = Vertex(Primitive.PARAMETER, [], {"name": p.arg}, self.types(p.annotation, p, one=True))
        params = tuple(found.values())
        calls = dict(self.vertex(statement, found) for statement in definition.body[:-1])
        for vertex, call in calls.items():      # when all have names: an edge may lead back
            self.connect(vertex, call, found)
        return Dataflow(definition.name, params, tuple(found.values()), self.returned(definition.body[-1], found))

    def vertex(self, statement: ast.stmt, found: dict[str, Vertex]) -> tuple[Vertex, ast.Call]:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id=does)) as call) \
                    if does in PRIMITIVES or does in OPS:
                self.claim(name, statement, found, {})
                what: Op | Primitive = PRIMITIVES.get(does) or OPS[does]
                found[name] = Vertex(what, [], {}, self.types(statement.annotation, statement), self.location(call))
                return found[name], call
        raise self.error(statement, "expected `name: type = Primitive(...)`, `name: type = op(...)` or, last, return")

    def connect(self, vertex: Vertex, call: ast.Call, found: Vertices) -> None:
        keywords = self.keywords(call)
        after = keywords.pop("after", ast.List([]))
        if not isinstance(after, ast.List):
            raise self.error(after, "expected `after=[edge, ...]`")
        vertex.inputs += [self.source(x, found) for x in call.args]
        vertex.after += [self.edge(x, found) for x in after.elts]
        vertex.attrs = {name: self.attribute(x, {}) for name, x in keywords.items()}

    def source(self, node: ast.expr, found: Vertices) -> Source:
        return self.edge(node, found) if self.names_value(node) else self.literal(node, None)

    def edge(self, node: ast.expr, found: Vertices) -> Edge:
        match node:
            case ast.Name(id=name) if name in found and len(found[name].types) == 1:
                return found[name][0]
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=k)) \
                    if name in found and type(k) is int and 0 <= k < len(found[name].types):
                return found[name][k]
        raise self.error(node, f"no edge named {ast.unparse(node)!r}")

    def returned(self, statement: ast.stmt, found: Vertices) -> tuple[Edge, ...]:
        if not isinstance(statement, ast.Return):
            raise self.error(statement, "a dataflow ends with return")
        value: Any = statement.value
        listed = [] if value is None else value.elts if isinstance(value, ast.Tuple) else [value]
        return tuple(self.edge(x, found) for x in listed)
