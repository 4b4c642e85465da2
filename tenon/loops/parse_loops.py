"""Text -> loops: what `loop_printer` wrote, elements and statements.

    kernel = parse_kernel(text)         # is_same(kernel, parse_kernel(print_kernel(kernel)))
    parsed = parse_loops(text)          # elements, groups of them and nests, as passes see them

What is read may come from anybody: reading ends soon, and ends in loops or in a GraphError that names the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tenon.dims.symbolic_dim import symbols
from tenon.errors import GraphError
from tenon.graph.parse import syntax_of
from tenon.loops.expressions import OPERATION, Binary, Buffer, Expr, Index, Local, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_ir import (
    Accumulator,
    Attention,
    AttentionGradient,
    Block,
    Chunk,
    Contraction,
    Kernel,
    Let,
    Loop,
    Nest,
    Prefetch,
    Stmt,
    Store,
    TransposeTile,
    Update,
    checks_of,
)
from tenon.loops.loop_printer import sizes_of
from tenon.loops.parse_loop_expressions import ExpressionParser, LoopNames
from tenon.loops.store_target import StoreTarget
from tenon.records import dataclass
from tenon.types import BY_SHORT, TensorType

MAX_DEPTH = 160         # of statements and expressions together
KINDS = {"range": "serial", "parallel": "parallel", "vector": "vector"}
OF_OPERATION = {op: kind for kind, op in OPERATION.items()}
FACTORS = {"attention": (), "attention_gradient": ("g", "along", "total")}
_RESULTS = re.compile(r"\) -> \((.*)\):$")


@dataclass(frozen=True, eq=False)
class ParsedLoops:
    """`sections`: what stands between barriers, the elements of a nest, or a nest."""

    context: LoopContext
    sections: tuple[list[StoreTarget] | Nest, ...]
    sizes: tuple[str, ...]

    def with_nests(self, nests: Sequence[Nest]) -> ParsedLoops:
        """The same with other nests."""
        return ParsedLoops(self.context, tuple(nests), self.sizes)

    def kernel(self) -> Kernel:
        """The kernel; raises GraphError where there are elements, of which no loops are made yet."""
        nests = [x for x in self.sections if isinstance(x, Nest)]
        if len(nests) < len(self.sections):
            raise GraphError(f"{self.context.name} has elements, of which no loops are made yet")
        return Kernel(self.context.name, self.context.inputs, self.context.outputs, tuple(self.context.added),
                      self.sizes, tuple(nests), checks_of(nests))


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text describes; raises GraphError naming the line that is not understood."""
    return parse_loops(text).kernel()


def parse_loops(text: str) -> ParsedLoops:
    """The loops that a text describes; raises GraphError naming the line that is not understood."""
    lines = text.split("\n")
    for k, line in enumerate(lines):
        if line.startswith("def "):
            lines[k] = _RESULTS.sub(r") -> {\1}:", line)       # so it is Python
    tree = syntax_of("\n".join(lines), "the text of loops", MAX_DEPTH)
    parser = LoopParser(text)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise parser.error(tree.body[-1] if tree.body else tree, "the text of loops is one definition")
    return parser.loops_of(tree.body[0])


def is_loop_text(text: str) -> bool:
    """Whether a text is of loops, and not of a graph."""
    return any(line.startswith("def ") and _RESULTS.search(line) for line in text.split("\n"))


class LoopParser(ExpressionParser):
    """The statements of one text."""

    def loops_of(self, definition: ast.FunctionDef) -> ParsedLoops:
        returns, definition.returns = definition.returns, None
        inputs = [(x.arg, x.annotation, x) for x in self.parameters(definition)]
        if not isinstance(returns, ast.Dict):
            raise self.error(definition, "expected `def name(x: type, ...) -> (out: type, ...):`")
        outputs = [(x.id if isinstance(x, ast.Name) else "", y, returns)
                   for x, y in zip(returns.keys, returns.values, strict=True)]
        buffers: dict[str, Buffer] = {}
        found = [[self.declared(name, type, role, where, buffers) for name, type, where in listed]
                 for listed, role in ((inputs, "input"), (outputs, "output"))]
        context = LoopContext(definition.name, tuple(found[0]), tuple(found[1]))
        body, sizes = definition.body, sizes_of(context.inputs)
        if body and (args := _bare_call(body[0], "sizes")) is not None:
            sizes, body = tuple(x.id if isinstance(x, ast.Name) else "" for x in args), body[1:]
            if not all(sizes):
                raise self.error(args[0], "expected names of sizes")
            self.symbols |= set(sizes)
        while body and (made := self.allocation(body[0], "temporary", buffers)) is not None:
            context.added.append(made)
            body = body[1:]
        body = [x for x in body if not isinstance(x, ast.Pass)]
        sections = [self.section(part, buffers) for part in _between_barriers(body)] if body else []
        return ParsedLoops(context, tuple(sections), sizes)

    def declared(self, name: str, type: ast.expr | None, role: str, where: ast.AST,
                 buffers: dict[str, Buffer]) -> Buffer:
        """New memory of this name."""
        if not name or name in buffers:
            raise self.error(where, f"the name {name!r} is taken" if name else "expected `name: type`")
        found: TensorType = self.types(type, where, one=True)[0]
        for n in found.shape:
            self.symbols |= symbols(n)
        buffers[name] = Buffer(name, found, role)
        return buffers[name]

    def allocation(self, statement: ast.stmt, role: str, buffers: dict[str, Buffer]) -> Buffer | None:
        """The memory of `name: type = role()`, if a statement is that."""
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=type,
                               value=ast.Call(func=ast.Name(id=called), args=[], keywords=[])) if called == role:
                return self.declared(name, type, role, statement, buffers)
        return None

    def section(self, body: Sequence[ast.stmt], buffers: dict[str, Buffer]) -> list[StoreTarget] | Nest:
        """What stands between two barriers."""
        if body and all(_with(x, "elements") is not None for x in body):
            return [self.element(x, LoopNames({}, buffers, {})) for x in body if isinstance(x, ast.With)]
        inside, rows = dict(buffers), list[Buffer]()
        while body and (row := self.allocation(body[0], "local", inside)) is not None:
            rows.append(row)
            body = body[1:]
        return Nest(self.block(body, LoopNames({}, inside, {}), {}), tuple(rows))

    # ------------------------------------------------------------ elements

    def element(self, statement: ast.With, names: LoopNames) -> StoreTarget:
        call = _with(statement, "elements")
        assert call is not None
        indices, extents = list[Index](), list[Expr]()
        for x in call.args:
            index, extent = self.axis(x, names)
            if index.name in names.scalars:
                raise self.error(x, f"two loops have the index {index}")
            names = names.with_scalars(index)
            indices.append(index)
            extents.append(extent)
        chunk, names = self.chunk(call, names)
        *named, last = statement.body
        short = dict[str, ast.expr]()
        for part in named:
            match part:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in names.scalars:
                    short[name] = value
                case _:
                    raise self.error(part, "expected `name = expression`, before what is stored")
        match last:
            case ast.Assign(targets=[ast.Subscript(value=memory, slice=place)], value=value):
                names = LoopNames(names.scalars, names.buffers, short)
                buffer = self.buffer(memory, names)
                combine, value = self.combined(value)
                whole = all(e is size(i.extent) for i, e in zip(indices, extents, strict=True))
                self.done.clear()
                try:
                    return StoreTarget(buffer, tuple(indices), self.position(place, names),
                                       self.of_type(value, names, buffer.type.dtype), combine,
                                       () if whole else tuple(extents), chunk)
                except AssertionError as error:
                    raise self.error(last, str(error)) from None
        raise self.error(last, "expected `memory[place] = value`")

    def combined(self, value: ast.expr) -> tuple[str | None, ast.expr]:
        """(the reduction, the value) of `add(..., value)`."""
        match value:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=other), inner], keywords=[]) \
                    if kind in OPERATION and other is ...:
                return kind, inner
        return None, value

    def chunk(self, call: ast.Call, names: LoopNames) -> tuple[Chunk | None, LoopNames]:
        keywords = self.keywords(call)
        number, first = keywords.get("chunk"), keywords.get("first")
        if number is None and first is None:
            return None, names
        if number is None or not isinstance(first, ast.Name):
            raise self.error(call, "expected `chunk=number < chunks, first=name`")
        chunk = Chunk(self.axis(number, names)[0], Local(first.id, BY_SHORT["bool"]))
        return chunk, names.with_scalars(chunk.number, chunk.first)

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt], names: LoopNames, adding: dict[str, str]) -> Block:
        """Statements; `adding` says of each accumulator which reduction it is."""
        found: list[Stmt] = []
        for x in (x for x in body if not isinstance(x, ast.Pass)):
            made = self.statement(x, names, adding)
            if isinstance(made, (Let, Accumulator)):
                names = names.with_scalars(made.local)
                adding = {**adding, made.local.name: made.kind if isinstance(made, Accumulator) else ""}
            found.append(made)
        return tuple(found)

    def statement(self, x: ast.stmt, names: LoopNames, adding: dict[str, str]) -> Stmt:
        match x:
            case ast.For(target=ast.Name(id=name), iter=iterations, body=body, orelse=[]):
                index, extent, grain, kind = self.iterations(iterations, name, names, tuple(KINDS))
                return Loop(index, extent, self.block(body, names.with_scalars(index), adding), KINDS[kind], grain)
            case ast.With() if (call := _with(x, "contraction")) is not None:
                return self.contraction(x, call, names, adding)
            case ast.With() if (call := _with(x, *FACTORS)) is not None:
                return self.attention(x, call, names, adding)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=type, value=ast.expr() as value):
                return self.declaration(x, name, type, value, names)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="transpose"), args=[square])):
                return self.transposed(x, name, square, names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if adding.get(name):
                return self.update(x, name, adding[name], value, names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made = self.expression(value, names)
                return Let(Local(name, made.dtype), made)
            case ast.Assign(targets=[ast.Subscript(value=memory, slice=place)], value=value):
                buffer = self.buffer(memory, names)
                return Store(buffer, self.position(place, names), self.of_type(value, names, buffer.type.dtype))
            case ast.Expr(value=ast.Call(func=ast.Name(id="fetch"), args=[ast.Subscript(value=memory, slice=place)])):
                return Prefetch(self.buffer(memory, names), self.position(place, names))
        raise self.error(x, f"no statement of loops: {ast.unparse(x).splitlines()[0][:80]}")

    def declaration(self, x: ast.stmt, name: str, type: ast.expr, value: ast.expr, names: LoopNames) -> Stmt:
        """`i: index[n] = ...`, `r: f32 = add()` or `v: f32 = ...`."""
        match type, value:
            case ast.Subscript(value=ast.Name(id="index"), slice=extent), _:
                return Let(Index(name, self.dim(extent)), self.position(value, names))
            case ast.Name(id=short), ast.Call(func=ast.Name(id=kind), args=[], keywords=[]) \
                    if short in BY_SHORT and kind in OPERATION:
                return Accumulator(Local(name, BY_SHORT[short]), kind)
            case ast.Name(id=short), _ if short in BY_SHORT:
                return Let(Local(name, BY_SHORT[short]), self.of_type(value, names, BY_SHORT[short]))
        raise self.error(x, "expected `name: index[size] = ...`, or the type of a scalar")

    def update(self, x: ast.stmt, name: str, kind: str, value: ast.expr, names: LoopNames) -> Stmt:
        """`r = r + v`: what is combined into an accumulator."""
        match self.expression(value, names):
            case Binary(op=op, left=left, right=right) if OF_OPERATION.get(op) == kind and \
                    left is names.scalars.get(name) and isinstance(left, Local):
                return Update(left, kind, right)
        raise self.error(x, f"{name} is an accumulator: expected `{name} = {name} {OPERATION[kind]} ...`, or "
                            f"{kind}({name}, ...)")

    def transposed(self, x: ast.stmt, name: str, square: ast.expr, names: LoopNames) -> Stmt:
        """`b = transpose(b)`, or `b = transpose(b[:lines, :columns])`."""
        buffer, sides = names.buffers.get(name), [0, 0]
        match square:
            case ast.Name(id=of):
                sides = [n if isinstance(n, int) else 0 for n in buffer.type.shape[:1]] * 2 if buffer else sides
            case ast.Subscript(value=ast.Name(id=of), slice=ast.Tuple(elts=[
                    ast.Slice(lower=None, upper=ast.Constant(value=int() as lines), step=None),
                    ast.Slice(lower=None, upper=ast.Constant(value=int() as columns), step=None)])):
                sides = [lines, columns]
            case _:
                of = ""
        shape = buffer.type.shape if buffer is not None and of == name else ()
        if buffer is None or len(shape) != 2 or not all(isinstance(n, int) and 0 < k <= n
                                                       for k, n in zip(sides, shape, strict=True)):
            raise self.error(x, "expected `square = transpose(square[:lines, :columns])`, of memory with two axes")
        return TransposeTile(buffer, *sides)

    # ------------------------------------------------------------ products and attention

    def axes(self, node: ast.expr | None, names: LoopNames) -> tuple[Index, ...]:
        """The indices of `(i < n, j < m)`."""
        listed = [] if node is None else node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.axis(x, names)[0] for x in listed)

    def factors(self, node: ast.expr, names: LoopNames) -> tuple[tuple[Index, ...], Expr, Expr]:
        """(the indices, the left and the right factor) of `sum(left * right for k in range(n))`."""
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=ast.BinOp(
                    left=left, op=ast.Mult(), right=right)) as loops], keywords=[]):
                indices, extents, inside = self.loops(loops, names)
                if all(e is size(i.extent) for i, e in zip(indices, extents, strict=True)):
                    return indices, self.expression(left, inside), self.expression(right, inside)
        raise self.error(node, "expected `sum(left * right for index in range(n))`")

    def contraction(self, x: ast.With, call: ast.Call, names: LoopNames, adding: dict[str, str]) -> Stmt:
        keywords = self.keywords(call)
        if call.args or not keywords.keys() <= {"batch", "rows", "columns", "schedule", "chunk", "first"}:
            raise self.error(x, "expected contraction(batch=, rows=, columns=, schedule=, chunk=, first=)")
        batch, rows, columns = (self.axes(keywords.get(key), names) for key in ("batch", "rows", "columns"))
        schedule = getattr(keywords.get("schedule"), "value", "")
        if not isinstance(schedule, str):
            raise self.error(x, "expected schedule='name'")
        chunk, names = self.chunk(call, names)
        names = names.with_scalars(*batch, *rows, *columns)
        match x.body[0]:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                depth, left, right = self.factors(value, names)
                total = Local(name, left.dtype)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id=short), value=ast.expr() as value) \
                    if short in BY_SHORT:
                depth, left, right = self.factors(value, names)
                total = Local(name, BY_SHORT[short])
            case first:
                raise self.error(first, "expected `total = sum(left * right for index in range(n))`")
        epilogue = self.block(x.body[1:], names.with_scalars(total), adding)
        return Contraction(batch, rows, columns, depth, left, right, total, epilogue, schedule, chunk)

    def attention(self, x: ast.With, call: ast.Call, names: LoopNames, adding: dict[str, str]) -> Stmt:
        keywords, kind = self.keywords(call), ast.unparse(call.func)
        axes = [self.axes(keywords.get(key), names) for key in ("batch", "row", "column", "width")]
        dtype, causal = keywords.get("dtype"), getattr(keywords.get("causal"), "value", False)
        if any(len(axis) != 1 for axis in axes[1:]) or not isinstance(dtype, ast.Name) or dtype.id not in BY_SHORT \
                or not isinstance(causal, bool):
            raise self.error(x, f"expected {kind}(batch=, row=, column=, width=, dtype=, causal=)")
        batch, (row,), (column,), (width,) = axes
        names = names.with_scalars(*batch, row, column, width)
        scale, (depth, q, k), body = self.scores(x, names)
        wanted, parts = ("mask", "masked", "v", *FACTORS[kind]), dict[str, ast.expr]()
        while body and isinstance(body[0], ast.Assign) and isinstance(target := body[0].targets[0], ast.Name) \
                and target.id in wanted:
            parts[target.id], body = body[0].value, body[1:]
        mask = self.condition(parts["mask"], names) if "mask" in parts else None
        masked = float(self.number(parts["masked"])) if "masked" in parts else None
        if missing := [name for name in ("v", *FACTORS[kind]) if name not in parts]:
            raise self.error(x, f"expected `{missing[0]} = ...`")
        factors = [self.expression(parts[name], names) for name in ("v", *FACTORS[kind])]
        results = list[Local]()
        while body and (name_type := _result(body[0])) is not None:
            results.append(Local(name_type[0], BY_SHORT[name_type[1]]))
            body = body[1:]
        stores = self.block(body, names.with_scalars(*depth, *results), adding)
        form = Attention if kind == "attention" else AttentionGradient
        if len(depth) != 1:
            raise self.error(x, "expected a sum over one index")
        return form(batch, row, column, depth[0], width, q, k, factors[0], mask, causal, scale, masked,
                    BY_SHORT[dtype.id], tuple(results), stores, *factors[1:])

    def scores(self, x: ast.With,
               names: LoopNames) -> tuple[float, tuple[tuple[Index, ...], Expr, Expr], list[ast.stmt]]:
        """(the scale, what is multiplied, what follows) of `score = scale * sum(q * k for ...)`."""
        match x.body[0]:
            case ast.Assign(targets=[ast.Name(id="score")], value=ast.BinOp(left=scale, op=ast.Mult(), right=terms)):
                return float(self.number(scale)), self.factors(terms, names), x.body[1:]
        raise self.error(x.body[0], "expected `score = scale * sum(q * k for index in range(n))`")


def _between_barriers(body: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    part: list[ast.stmt] = []
    for x in body:
        if _bare_call(x, "barrier") is not None:
            yield part
            part = []
        else:
            part.append(x)
    yield part


def _bare_call(x: ast.stmt, name: str) -> list[ast.expr] | None:
    """The arguments of a call that is a statement."""
    match x:
        case ast.Expr(value=ast.Call(func=ast.Name(id=called), args=args, keywords=[])) if called == name:
            return args
    return None


def _with(x: ast.stmt, *names: str) -> ast.Call | None:
    """The call in `with name(...):`, if a statement is that."""
    match x:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Name(id=name)) as call,
                                          optional_vars=None)]) if name in names:
            return call
    return None


def _result(x: ast.stmt) -> tuple[str, str] | None:
    """(the name, the type) of `name: type = result()`."""
    match x:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id=short),
                           value=ast.Call(func=ast.Name(id="result"), args=[], keywords=[])) if short in BY_SHORT:
            return name, short
    return None
