"""Graph <-> text.  The text form is Python syntax, and is also the saved form: it parses back to an equal graph.

    def step(x: f32[B, 784], w: f32[784, 10]):
        v0: f32[B, 10] = matmul(x, w)                    # train.py:14
        v1: tuple[f32[B, 2], i64[B, 2]] = topk(v0, k=2, axis=1)
        return v1[0], v1[1]

A literal has the type of the first value among its node's inputs, unless written `f64(1.0)`.  Sub-graphs are nested
functions, named by the attribute that holds them.  Reading text never runs it.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.dataclasses import dataclass
from tenon.dims import SymbolicDim, parse_dim
from tenon.errors import GraphError, Location, TenonError
from tenon.graph.build import literal
from tenon.graph.ir import Graph, Literal, Node, Value, graphs_in
from tenon.graph.op import OPS, Op
from tenon.graph.remember import once_a_graph
from tenon.types import BY_SHORT, DType, TensorType

INDENT = "    "
_WRITTEN_AS_IN_PYTHON = frozenset({int, bool, float, str, type(None)})
_NUMBERS = {"inf": math.inf, "nan": math.nan}


# ---------------------------------------------------------------- printing

def print_graph(graph: Graph, locations: bool = True) -> str:
    """The text of `graph`; `locations` adds the user's line to every node."""
    return "\n".join(_lines(graph, graph.name, "", locations))


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


def _lines(graph: Graph, title: str, indent: str, locations: bool) -> Iterator[str]:
    names = value_names(graph)
    params = ", ".join(f"{names[p]}: {p.type}" for p in graph.params)
    yield f"{indent}def {title}({params}):"
    inner, taken = indent + INDENT, set(names.values())
    for node in graph.nodes:
        titles: dict[Graph, str] = {}
        for attribute, value in node.attrs.items():
            for body in graphs_in(value):
                if body not in titles:
                    titles[body] = _unused(body.name if body.name.isidentifier() else attribute, taken)
                    yield from _lines(body, titles[body], inner, locations)
        comment = f"  # {node.loc}" if node.loc and locations else ""
        yield f"{inner}{_left(node, names)} = {_call(node, names, titles)}{comment}"
    yield f"{inner}return {', '.join(names[r] for r in graph.results)}".rstrip()


def value_names(graph: Graph) -> dict[Value, str]:
    """The name of every value in the text form."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for k, param in enumerate(graph.params):
        wanted = param.name if param.name.isidentifier() else f"p{k}"
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


def _unused(wanted: str, taken: set[str]) -> str:
    name, k = wanted, 0
    while name in taken or name in BY_SHORT or name in _NUMBERS:
        k += 1
        name = f"{wanted}_{k}"
    taken.add(name)
    return name


def _left(node: Node, names: Mapping[Value, str]) -> str:
    if len(node.outputs) == 1:
        made = node.outputs[0]
        return f"{names[made]}: {made.type}"
    base = names[node.outputs[0]].partition("[")[0]
    return f"{base}: tuple[{', '.join(str(x.type) for x in node.outputs)}]"


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


# ---------------------------------------------------------------- parsing

def parse_graph(text: str) -> Graph:
    """The graph that `text` describes; raises GraphError naming the line that is not understood."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraphError(f"the text of a graph is not valid: {error}") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise GraphError("the text of a graph is one function definition")
    return _Parser(text.splitlines()).graph(tree.body[0])


def parse_type(text: str) -> TensorType:
    """The type that a text such as `f32[B, 784]` spells; raises GraphError otherwise."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise GraphError(f"not a type: {text!r} ({error.msg})") from None
    return _Parser([text]).types(expression, expression)[0]


def parse_attribute(text: str) -> Any:
    """The attribute that `attribute_text` wrote; raises GraphError for anything else."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise GraphError(f"not an attribute: {text!r} ({error.msg})") from None
    return _Parser([text]).attribute(expression, {})


@dataclass(frozen=True)
class Example:
    """One line of an operator's examples: a call on types, and the types it gives, or None for an error."""

    op: Op
    inputs: tuple[TensorType | Literal | None, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[TensorType, ...] | None


def parse_example(text: str) -> Example:
    """The parts of `relu(f32[2, 3]) -> f32[2, 3]` or `matmul(f32[2, 3], f32[2, 3]) -> error`."""
    left, _, right = text.rpartition("->")
    parser = _Parser([text])
    call = ast.parse(left.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name), text
    inputs = tuple(parser.literal(x, None) if isinstance(x, (ast.Call, ast.Constant)) else parser.types(x, x)[0]
                   for x in call.args)
    attrs = {str(k.arg): parser.attribute(k.value, {}) for k in call.keywords}
    outputs = ast.parse(f"tuple[{right.strip()}]", mode="eval").body
    expected = None if right.strip() == "error" else parser.types(outputs, outputs)
    return Example(OPS[call.func.id], inputs, attrs, expected)


class _Parser:
    def __init__(self, lines: list[str]):
        self.lines = lines

    def graph(self, definition: ast.FunctionDef) -> Graph:
        params = [Value(self.types(arg.annotation, arg)[0], name=arg.arg) for arg in definition.args.args]
        env: dict[str, tuple[Value, ...]] = {p.name: (p,) for p in params}
        graphs: dict[str, Graph] = {}
        nodes: list[Node] = []
        for statement in definition.body:
            match statement:
                case ast.FunctionDef():
                    graphs[statement.name] = self.graph(statement)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call):
                    node = self.node(call, self.types(statement.annotation, statement), env, graphs)
                    env[name] = node.outputs
                    nodes.append(node)
                case ast.Return(value=value):
                    listed = [] if value is None else value.elts if isinstance(value, ast.Tuple) else [value]
                    return Graph(definition.name, tuple(params), tuple(nodes),
                                 tuple(self.value(x, env) for x in listed))
                case _:
                    raise self.error(statement, "expected `name: type = op(...)`, a nested def or return")
        raise self.error(definition, "a graph ends with return")

    def node(self, call: ast.Call, types: tuple[TensorType, ...], env: Mapping[str, tuple[Value, ...]],
             graphs: Mapping[str, Graph]) -> Node:
        if not isinstance(call.func, ast.Name) or call.func.id not in OPS:
            raise self.error(call, f"no operator named {ast.unparse(call.func)!r}")
        keywords = {k.arg: k.value for k in call.keywords}
        after = keywords.pop("after", None)
        values = [self.value(x, env) if self.names_value(x, env) else x for x in call.args]
        natural = next((v.dtype for v in values if isinstance(v, Value)), None)
        inputs = tuple(v if isinstance(v, Value) else self.literal(v, natural) for v in values)
        attrs = {str(name): self.attribute(x, graphs) for name, x in keywords.items()}
        order = tuple(self.value(x, env) for x in after.elts) if isinstance(after, ast.List) else ()
        node = Node(OPS[call.func.id], inputs, attrs, (), self.location(call), order)
        node.outputs = tuple(Value(t, node, k) for k, t in enumerate(types))
        return node

    def names_value(self, node: ast.expr, env: Mapping[str, tuple[Value, ...]]) -> bool:
        base = node.value if isinstance(node, ast.Subscript) else node
        return isinstance(base, ast.Name) and base.id not in _NUMBERS

    def value(self, node: ast.expr, env: Mapping[str, tuple[Value, ...]]) -> Value:
        match node:
            case ast.Name(id=name) if name in env and len(env[name]) == 1:
                return env[name][0]
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(k))) \
                    if name in env and 0 <= k < len(env[name]):
                return env[name][k]
        raise self.error(node, f"no value named {ast.unparse(node)!r}")

    def literal(self, node: Any, natural: DType | None) -> Literal | None:
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Call(func=ast.Name(id=short), args=[number]) if short in BY_SHORT:
                return literal(self.number(number), BY_SHORT[short])
        if natural is None:
            raise self.error(node, "a literal beside no value states its type, as in f32(1.0)")
        try:
            return literal(self.number(node), natural)
        except (TenonError, ValueError, OverflowError) as error:
            raise self.error(node, str(error)) from None

    def number(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() as value):
                return value
            case ast.Name(id=name) if name in _NUMBERS:
                return _NUMBERS[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.number(left) + self.number(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.number(left) - self.number(right)
        raise self.error(node, f"not a number: {ast.unparse(node)}")

    def attribute(self, node: ast.expr, graphs: Mapping[str, Graph]) -> Any:
        match node:
            case ast.Tuple(elts=elements):
                return tuple(self.attribute(x, graphs) for x in elements)
            case ast.Constant(value=None | str() as value):
                return value
            case ast.Name(id=name) if name in graphs:
                return graphs[name]
            case ast.Name(id=name) if name in BY_SHORT:
                return BY_SHORT[name]
        try:
            return self.number(node)
        except GraphError:
            pass
        try:
            return parse_dim(node)
        except ValueError:
            raise self.error(node, f"not an attribute: {ast.unparse(node)}") from None

    def types(self, node: ast.expr | None, where: ast.AST) -> tuple[TensorType, ...]:
        match node:
            case ast.Name(id=short) if short in BY_SHORT:
                return (TensorType(BY_SHORT[short], ()),)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=inner):
                listed = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return tuple(t for x in listed for t in self.types(x, where))
            case ast.Subscript(value=ast.Name(id=short), slice=inner) if short in BY_SHORT:
                dims = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                try:
                    return (TensorType(BY_SHORT[short], tuple(map(parse_dim, dims))),)
                except ValueError as error:
                    raise self.error(node, str(error)) from None
        raise self.error(where, f"not a type: {ast.unparse(node) if node else 'nothing'}")

    def location(self, node: ast.expr) -> Location | None:
        line = self.lines[(node.end_lineno or node.lineno) - 1]
        _, _, comment = line[node.end_col_offset or 0:].partition("# ")
        file, _, number = comment.strip().rpartition(":")
        return Location(file, int(number)) if file and number.isdigit() else None

    def error(self, node: Any, problem: str) -> GraphError:
        line = getattr(node, "lineno", 1)
        source = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return GraphError(f"graph text, line {line}: {problem}", why=source or None)
