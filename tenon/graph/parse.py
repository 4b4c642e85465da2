"""Text -> graph, type or attribute: Python's own syntax tree, of which nothing is ever run.

What is read may come from anybody.  Reading ends soon, and ends in a graph or in a GraphError that names the line:
text, nesting, numbers and sizes have limits.  That operators get what they take is `tenon.graph.verify`'s to say.
"""

from __future__ import annotations

import ast
import math
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.devices import HOST
from tenon.dims.parse_dims import parse_dim
from tenon.errors import GraphError, Location, TenonError
from tenon.graph.build import literal
from tenon.graph.ir import AS_READ, DEVICES, Graph, Literal, Node, Value
from tenon.graph.op import OPS, Op
from tenon.graph.partition import extent
from tenon.graph.value_devices import ANYWHERE, devices_of
from tenon.records import dataclass
from tenon.types import BY_SHORT, DType, TensorType

NUMBERS = {"inf": math.inf, "nan": math.nan}
RESERVED = BY_SHORT.keys() | NUMBERS.keys() | {"tuple", "max"}     # which mean something wherever they stand
MAX_CHARACTERS = 1 << 23
MAX_DEPTH = 80                      # of statements and expressions together
MAX_BITS = 64
MAX_REPEATED, FEW = 4, 1000         # how much more it may be to compile than is written
_LINE_ENDS = re.compile("\r\n|\r|\n")       # Python's: `str.splitlines` knows more
_LINE = re.compile("[0-9]{1,9}")


def parse_graph(text: str) -> Graph:
    """The graph that `text` describes; raises GraphError naming the line that is not understood."""
    text = with_devices_quoted(text) if " @ " in text else text
    tree = syntax_of(text, "the text of a graph")
    parser = Parser(text)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise parser.error(tree.body[-1] if tree.body else tree, "the text of a graph is one function definition")
    graph = parser.graph(tree.body[0])
    nodes, held = extent(graph)
    if held > MAX_REPEATED * nodes + FEW:
        raise parser.error(tree.body[0], f"its {nodes} nodes are {held} with those of sub-graphs that are held again")
    if parser.devices:
        parser.set_devices(graph)
    if graph.symbols():
        graph.notes = {**graph.notes, AS_READ: graph}
    return graph


def parse_type(text: str) -> TensorType:
    """The type that a text such as `f32[B, 784]` spells; raises GraphError otherwise."""
    expression = _expression(text, "not a type")
    found = Parser(text).types(expression, expression)
    if len(found) != 1:
        raise GraphError(f"not one type: {text!r}")
    return found[0]


def parse_attribute(text: str) -> Any:
    """The attribute that `attribute_text` wrote; raises GraphError for anything else."""
    return Parser(text).attribute(_expression(text, "not an attribute"), {})


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
    parser = Parser(text)
    call = ast.parse(left.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name), text
    inputs = tuple(parser.literal(x, None) if isinstance(x, (ast.Call, ast.Constant)) else parser.types(x, x)[0]
                   for x in call.args)
    attrs = {str(k.arg): parser.attribute(k.value, {}) for k in call.keywords}
    outputs = ast.parse(f"tuple[{right.strip()}]", mode="eval").body
    expected = None if right.strip() == "error" else parser.types(outputs, outputs)
    return Example(OPS[call.func.id], inputs, attrs, expected)


# ---------------------------------------------------------------- syntax

def syntax_of(text: str, what: str, most_depth: int = MAX_DEPTH) -> ast.Module:
    """The syntax tree of a text, which is not too long and not too deep."""
    if len(text) > MAX_CHARACTERS:
        raise GraphError(f"{what} is too long: {len(text)} characters, at most {MAX_CHARACTERS}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraphError(f"{what} is not valid: {error}") from None
    too_deep = (line for depth, line in _depths(tree) if depth > most_depth)
    if len(text) > most_depth and (line := next(too_deep, None)) is not None:
        raise GraphError(f"{what}, line {line}: nested too deeply, more than {most_depth} levels")
    return tree


def with_devices_quoted(text: str) -> str:
    """The text with `@ cpu:1` as `@ "cpu:1"`, which Python reads as an expression."""
    lines = text.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(iter(lines).__next__))
    except (SyntaxError, tokenize.TokenError, RecursionError):
        return text             # which is refused
    for at, kind, colon, number in reversed(list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))):
        if (at.string, colon.string) == ("@", ":") and kind.type == tokenize.NAME and number.type == tokenize.NUMBER \
                and kind.end == colon.start and colon.end == number.start:
            row = kind.start[0] - 1
            start, end = kind.start[1], number.end[1]
            lines[row] = f'{lines[row][:start]}"{lines[row][start:end]}"{lines[row][end:]}'
    return "".join(lines)


def _depths(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """(how deep, in which line) every part of a tree is.  Not by recursion, which may be what is too deep."""
    parts = [(tree, 0, 1)]
    while parts:
        part, depth, line = parts.pop()
        line = getattr(part, "lineno", line)
        yield depth, line
        parts += [(inner, depth + 1, line) for inner in ast.iter_child_nodes(part)]


def _expression(text: str, problem: str) -> ast.expr:
    body = syntax_of(text.strip(), problem).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise GraphError(f"{problem}: {text!r}")
    return body[0].value


class Parser:
    """The statements and expressions of one text."""

    what = "graph text"

    def __init__(self, text: str):
        self.lines = _LINE_ENDS.split(text)
        self.devices: dict[Value, tuple[str, ast.AST]] = {}     # as the text says them

    # ------------------------------------------------------------ statements

    def graph(self, definition: ast.FunctionDef) -> Graph:
        listed = self.parameters(definition)
        params = [Value(self.types(x.annotation, x, one=True)[0], name=x.arg) for x in listed]
        for p, x in zip(params, listed, strict=True):
            self.note_devices((p,), x.annotation)
        env: dict[str, tuple[Value, ...]] = {}
        graphs: dict[str, Graph] = {}
        for p in params:
            self.claim(p.name, definition, env, graphs)
            env[p.name] = (p,)
        nodes: list[Node] = []
        for statement in definition.body[:-1]:
            match statement:
                case ast.FunctionDef(name=name):
                    self.claim(name, statement, env, graphs)
                    graphs[name] = self.graph(statement)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call):
                    self.claim(name, statement, env, graphs)
                    node = self.node(call, self.types(statement.annotation, statement), env, graphs)
                    env[name] = node.outputs
                    self.note_devices(node.outputs, statement.annotation)
                    nodes.append(node)
                case _:
                    raise self.error(statement, "expected `name: type = op(...)`, a nested def or, last, return")
        return Graph(definition.name, tuple(params), tuple(nodes), self.results(definition.body[-1], env))

    def parameters(self, definition: ast.FunctionDef) -> list[ast.arg]:
        """Those of a plain definition, which states their types and nothing else."""
        args = definition.args
        if args.posonlyargs or args.vararg or args.kwonlyargs or args.kwarg or args.defaults \
                or definition.decorator_list or definition.returns:
            raise self.error(definition, "expected `def name(x: type, ...):`")
        return args.args

    def claim(self, name: str, where: ast.AST, env: Mapping[str, Any], graphs: Mapping[str, Any]) -> None:
        """Raise GraphError where a name is taken, or means something else."""
        if name in env or name in graphs:
            raise self.error(where, f"the name {name!r} is taken")
        if name in RESERVED:
            raise self.error(where, f"the name {name!r} means something else")

    def results(self, statement: ast.stmt, env: Mapping[str, tuple[Value, ...]]) -> tuple[Value, ...]:
        if not isinstance(statement, ast.Return):
            raise self.error(statement, "a graph ends with return")
        value = statement.value
        listed = [] if value is None else value.elts if isinstance(value, ast.Tuple) else [value]
        return tuple(self.value(x, env) for x in listed)

    def node(self, call: ast.Call, types: tuple[TensorType, ...], env: Mapping[str, tuple[Value, ...]],
             graphs: Mapping[str, Graph]) -> Node:
        if not isinstance(call.func, ast.Name) or call.func.id not in OPS:
            raise self.error(call, f"no operator named {ast.unparse(call.func)!r}")
        keywords = self.keywords(call)
        after = keywords.pop("after", None)
        values = [self.value(x, env) if self.names_value(x) else x for x in call.args]
        natural = next((v.dtype for v in values if isinstance(v, Value)), None)
        inputs = tuple(v if isinstance(v, Value) else self.literal(v, natural) for v in values)
        attrs = {name: self.attribute(x, graphs) for name, x in keywords.items()}
        node = Node(OPS[call.func.id], inputs, attrs, (), self.location(call), self.order(after, env))
        node.outputs = tuple(Value(t, node, k) for k, t in enumerate(types))
        return node

    def keywords(self, call: ast.Call) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in found:
                raise self.error(call, "expected each attribute once, as `name=value`")
            found[keyword.arg] = keyword.value
        return found

    def order(self, after: ast.expr | None, env: Mapping[str, tuple[Value, ...]]) -> tuple[Value, ...]:
        """The values that a node waits for."""
        if after is None:
            return ()
        if not isinstance(after, ast.List):
            raise self.error(after, "expected `after=[token, ...]`")
        return tuple(self.value(x, env) for x in after.elts)

    # ------------------------------------------------------------ values and attributes

    def names_value(self, node: ast.expr) -> bool:
        base = node.value if isinstance(node, ast.Subscript) else node
        return isinstance(base, ast.Name) and base.id not in NUMBERS

    def value(self, node: ast.expr, env: Mapping[str, tuple[Value, ...]]) -> Value:
        match node:
            case ast.Name(id=name) if name in env and len(env[name]) == 1:
                return env[name][0]
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=k)) \
                    if name in env and type(k) is int and 0 <= k < len(env[name]):
                return env[name][k]
        raise self.error(node, f"no value named {ast.unparse(node)!r}")

    def literal(self, node: Any, natural: DType | None) -> Literal | None:
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Call(func=ast.Name(id=short), args=[number], keywords=[]) if short in BY_SHORT:
                return self.literal(number, BY_SHORT[short])
        if natural is None:
            raise self.error(node, "a literal beside no value states its type, as in f32(1.0)")
        if natural.kind in "ts":
            raise self.error(node, f"no literal is a {natural.name}")
        try:
            return literal(self.number(node), natural)
        except (TenonError, ValueError, TypeError, OverflowError) as error:
            raise self.error(node, getattr(error, "what", str(error))) from None

    def number(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() as value):
                return self.in_reach(value, node)
            case ast.Name(id=name) if name in NUMBERS:
                return NUMBERS[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.in_reach(self.number(left) + self.number(right), node)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.in_reach(self.number(left) - self.number(right), node)
        raise self.error(node, f"not a number: {ast.unparse(node)}")

    def in_reach(self, number: Any, node: ast.expr) -> Any:
        if isinstance(number, int) and number.bit_length() > MAX_BITS:
            raise self.error(node, f"a number of more than {MAX_BITS} bits")
        return number

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
        return self.number(node) if self.is_number(node) else self.size(node)

    def is_number(self, node: ast.expr) -> bool:
        """Whether an expression is made of numbers alone, by + and -."""
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.is_number(operand)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self.is_number(left) and self.is_number(right)
            case ast.Name(id=name):
                return name in NUMBERS
        return isinstance(node, ast.Constant)

    def size(self, node: ast.expr) -> Any:
        """A number or a symbolic size."""
        if any(isinstance(x, ast.Name) and x.id in RESERVED - {"max"} for x in ast.walk(node)):
            raise self.error(node, f"not a size: {ast.unparse(node)}")
        try:
            return parse_dim(node)
        except (TenonError, ValueError) as error:
            raise self.error(node, getattr(error, "what", str(error))) from None

    def types(self, node: ast.expr | None, where: ast.AST, one: bool = False) -> tuple[TensorType, ...]:
        """The types that an annotation spells; of a parameter it is `one`."""
        match node:
            case ast.BinOp(left=(ast.Name() | ast.Subscript()) as type, op=ast.MatMult(),
                           right=ast.Constant(value=str()) | ast.Name()):
                return self.types(type, where, one=True)
            case ast.Name(id=short) if short in BY_SHORT:
                return (TensorType(BY_SHORT[short], ()),)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=inner) if not one:
                listed = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return tuple(self.types(x, where, one=True)[0] for x in listed)
            case ast.Subscript(value=ast.Name(id=short), slice=inner) if short in BY_SHORT:
                dims = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return (TensorType(BY_SHORT[short], tuple(map(self.size, dims))),)
        raise self.error(where, f"not a type: {ast.unparse(node) if node else 'nothing'}")

    # ------------------------------------------------------------ devices

    def note_devices(self, values: Sequence[Value], annotation: ast.expr | None) -> None:
        """Remember where an annotation says that values are."""
        tuples = isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "tuple"
        inner: Any = annotation.slice if isinstance(annotation, ast.Subscript) and tuples else annotation
        listed = inner.elts if tuples and isinstance(inner, ast.Tuple) else [inner]
        for x, type in zip(values, listed, strict=True):
            if isinstance(type, ast.BinOp):
                name = type.right.value if isinstance(type.right, ast.Constant) else getattr(type.right, "id", "")
                self.devices[x] = str(name), type

    def set_devices(self, graph: Graph) -> None:
        """Note the devices of the parameters, and compare what follows with what is stated."""
        graph.notes = {DEVICES: tuple(self.devices[p][0] if p in self.devices else None for p in graph.params)}
        try:
            found = devices_of(graph)
        except TenonError as error:
            raise self.error(next(iter(self.devices.values()))[1], error.what) from None
        for x, (stated, where) in self.devices.items():
            if found.get(x) != stated and not (stated == ANYWHERE and found.get(x) is None):
                raise self.error(where, f"a value is stated on {stated}, and is on {found.get(x) or HOST}")

    # ------------------------------------------------------------ places

    def location(self, node: ast.expr) -> Location | None:
        """The place in the user's program that the comment behind a node names."""
        end = (node.end_lineno or node.lineno) - 1
        line = self.lines[end].encode() if end < len(self.lines) else b""
        _, _, comment = line[node.end_col_offset or 0:].decode(errors="replace").partition("# ")
        file, _, number = comment.strip().rpartition(":")
        return Location(file, int(number)) if file and _LINE.fullmatch(number) else None

    def error(self, node: Any, problem: str) -> GraphError:
        line = getattr(node, "lineno", 1)
        source = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return GraphError(f"{self.what}, line {line}: {problem}", why=source[:200] or None)
