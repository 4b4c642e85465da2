"""Text -> expressions of the loop IR: what `Expr.text` wrote, by Python's own syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from tenon.dims.symbolic_dim import Dim, SymbolicDim, symbols
from tenon.graph.parse import NUMBERS, Parser
from tenon.loops.expressions import (
    DEFAULT_TYPES,
    NUMBER_OF_KIND,
    REDUCTIONS,
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Reduce,
    Select,
    SizeOf,
    constant,
    size,
)
from tenon.records import dataclass
from tenon.types import BY_SHORT, DType, bool_, int64

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
OF_BITS = ("&", "|", "^", "<<", ">>")
TWO_ARGUMENTS = ("atan2", "copysign", "floor_divide", "fmod", "hypot", "logaddexp", "nextafter", "pow", "product",
                 "remainder")
ONE_ARGUMENT = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "digamma", "erf", "erfc",
    "erfinv", "exp", "exp2", "expm1", "floor", "isnan", "lgamma", "log", "log10", "log1p", "log2", "neg", "normal_cdf",
    "not", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")
BITS = {f"bits_{short}": dtype for short, dtype in BY_SHORT.items()}


@dataclass(frozen=True, eq=False)
class LoopNames:
    """What the names mean at a place: scalars, memory, and what stands for a longer expression."""

    scalars: Mapping[str, Index | Local]
    buffers: Mapping[str, Buffer]
    short: Mapping[str, ast.expr]

    def with_scalars(self, *more: Index | Local) -> LoopNames:
        """The same with more names."""
        return LoopNames({**self.scalars, **{x.name: x for x in more}}, self.buffers, self.short)


class ExpressionParser(Parser):
    """The expressions of one text; GraphError names the line of what is not understood."""

    what = "loop text"

    def __init__(self, text: str):
        super().__init__(text)
        self.symbols: set[str] = set()                      # names of sizes
        self.done: dict[tuple[Any, ...], Expr] = {}         # of names for longer expressions, by what others mean there
        self.open: list[str] = []                           # those that are being read

    # ------------------------------------------------------------ expressions

    def of_type(self, node: ast.expr, names: LoopNames, dtype: DType) -> Expr:
        """An expression where one of this type stands."""
        found = self.maybe_number(node, names)
        if isinstance(found, Expr):
            return found
        return self.typed(node, found, dtype)

    def expression(self, node: ast.expr, names: LoopNames) -> Expr:
        """An expression; a number that stands alone is a float32, an int64 or a bool."""
        found = self.maybe_number(node, names)
        return found if isinstance(found, Expr) else self.typed(node, found, DEFAULT_TYPES[type(found)])

    def position(self, node: ast.expr, names: LoopNames) -> Expr:
        """An index expression."""
        return self.required(node, self.of_type(node, names, int64), int64)

    def condition(self, node: ast.expr, names: LoopNames) -> Expr:
        """An expression that is true or false."""
        return self.required(node, self.of_type(node, names, bool_), bool_)

    def required(self, node: ast.expr, found: Expr, dtype: DType) -> Expr:
        """The expression; raises GraphError where it has another type."""
        if found.dtype is not dtype:
            raise self.error(node, f"expected {dtype.name}, found {found.dtype.name}: {ast.unparse(node)[:80]}")
        return found

    def typed(self, node: ast.expr, value: Any, dtype: DType) -> Const:
        """A number of a type."""
        if type(value) is not NUMBER_OF_KIND.get(dtype.kind):
            raise self.error(node, f"{value!r} is no number of type {dtype.name}")
        found = constant(value, dtype)
        if repr(found.value) != repr(value):
            raise self.error(node, f"{value!r} is not {dtype.name}")
        return found

    def maybe_number(self, node: ast.expr, names: LoopNames) -> Expr | bool | int | float:
        """An expression, or a number whose type is told by what stands beside it."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value if isinstance(value, (bool, float)) else int(self.in_reach(value, node))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Name()):
                number: bool | int | float = self.number(node)
                return number
            case ast.Name(id=name):
                return self.named(node, name, names)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) \
                    if type(op) in OPERATORS:
                return self.binary(node, OPERATORS[type(op)], left, right, names)
            case ast.IfExp(test=test, body=ast.Subscript() as then, orelse=ast.Constant(value=0) as zero) \
                    if type(zero.value) is int:
                return self.load(then, names, self.condition(test, names))
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                a, b = self.pair(then, otherwise, names)
                return Select(self.condition(test, names), a, self.required(otherwise, b, a.dtype))
            case ast.Subscript():
                return self.load(node, names, None)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(node, name, names)
        raise self.error(node, f"no expression: {ast.unparse(node)[:80]}")

    def named(self, node: ast.expr, name: str, names: LoopNames) -> Expr | float:
        if name in names.scalars:
            return names.scalars[name]
        if name in names.short:
            return self.written_out(node, name, names)
        if name in NUMBERS:
            return NUMBERS[name]
        if name in self.symbols:
            return size(self.size(node))
        raise self.error(node, f"no scalar is named {name!r} here")

    def written_out(self, node: ast.expr, name: str, names: LoopNames) -> Expr:
        """What a name stands for, with what other names mean where it stands."""
        key = (name, *names.scalars.values())
        if key not in self.done:
            if name in self.open:
                raise self.error(node, f"{name!r} stands for something that contains it")
            self.open.append(name)
            self.done[key] = self.expression(names.short[name], names)
            self.open.pop()
        return self.done[key]

    def pair(self, one: ast.expr, other: ast.expr, names: LoopNames) -> tuple[Expr, Expr]:
        """Two expressions beside each other: a number takes the type of the other."""
        a, b = self.maybe_number(one, names), self.maybe_number(other, names)
        if not isinstance(a, Expr):
            a = self.typed(one, a, b.dtype if isinstance(b, Expr) and not isinstance(b, Const)
                           else DEFAULT_TYPES[type(a)])
        if not isinstance(b, Expr):
            b = self.typed(other, b, DEFAULT_TYPES[type(b)] if isinstance(a, Const) else a.dtype)
        return a, b

    def binary(self, node: ast.expr, op: str, left: ast.expr, right: ast.expr, names: LoopNames) -> Expr:
        a, b = self.pair(left, right, names)
        self.required(right, b, a.dtype)
        if a.dtype.kind == "f" and op in OF_BITS:
            raise self.error(node, f"{op} of {a.dtype.name}")
        return Binary(op, a, b)

    def load(self, node: ast.Subscript, names: LoopNames, mask: Expr | None) -> Load:
        return Load(self.buffer(node.value, names), self.position(node.slice, names), mask)

    def buffer(self, node: ast.expr, names: LoopNames) -> Buffer:
        """The memory of this name."""
        if not isinstance(node, ast.Name) or node.id not in names.buffers:
            raise self.error(node, f"no memory is named {ast.unparse(node)[:80]!r}")
        return names.buffers[node.id]

    # ------------------------------------------------------------ calls

    def call(self, node: ast.Call, name: str, names: LoopNames) -> Expr:
        args, keywords = node.args, self.keywords(node)
        match name, args:
            case _, [ast.GeneratorExp() as loops] if name in REDUCTIONS and not keywords:
                return self.reduction(loops, name, names)
            case ("min" | "max"), [left, right] if not keywords:
                return self.binary(node, name, left, right, names)
            case "const", [number, ast.Name(id=short)] if short in BY_SHORT and not keywords:
                return self.constant_of(number, BY_SHORT[short])
            case "size", [dim] if not keywords:
                return size(self.dim(dim))
            case "checked", [x, dim]:
                return self.checked(node, x, dim, keywords, names)
            case _, [x] if name in BY_SHORT and not keywords and BY_SHORT[name].kind in NUMBER_OF_KIND:
                return Cast(self.expression(x, names), BY_SHORT[name])
            case _, [x] if name in BITS and not keywords:
                return self.bits(node, self.expression(x, names), BITS[name])
        name = "not" if name == "not_" else name
        count = 2 if name in TWO_ARGUMENTS else 1 if name in ONE_ARGUMENT else 0
        if not count or len(args) != count or keywords:
            raise self.error(node, f"no function {name!r} of {len(args)} arguments" if count == 0
                             else f"{name} takes {count} arguments, found {len(args) + len(keywords)}")
        if count == 1:
            return Call(name, (self.expression(args[0], names),))
        a, b = self.pair(args[0], args[1], names)
        return Call(name, (a, self.required(args[1], b, a.dtype)))

    def constant_of(self, node: ast.expr, dtype: DType) -> Const:
        """A number as it is, of a type that nothing beside it tells."""
        value = self.number(node)
        if not isinstance(value, (bool, int, float)) or dtype.kind not in NUMBER_OF_KIND:
            raise self.error(node, f"{value!r} is no number of type {dtype.name}")
        return Const(value, dtype)

    def bits(self, node: ast.expr, x: Expr, dtype: DType) -> Expr:
        if dtype.kind not in NUMBER_OF_KIND or x.dtype.bits != dtype.bits:
            raise self.error(node, f"the bits of {x.dtype.name} are no {dtype.name}")
        return BitsOf(x, dtype)

    def checked(self, node: ast.Call, x: ast.expr, dim: ast.expr, keywords: Mapping[str, ast.expr],
                names: LoopNames) -> Expr:
        if not keywords.keys() <= {"mask", "wraps", "operator"}:
            raise self.error(node, "expected checked(position, size, mask=, wraps=, operator=)")
        mask = None if "mask" not in keywords else self.condition(keywords["mask"], names)
        wraps, operator = (getattr(keywords.get(key), "value", default) for key, default in
                           (("wraps", True), ("operator", "")))
        if not isinstance(wraps, bool) or not isinstance(operator, str):
            raise self.error(node, "expected wraps=True or False, and operator='name'")
        return CheckedIndex(self.position(x, names), self.dim(dim), mask, None, operator, wraps)

    def reduction(self, node: ast.GeneratorExp, kind: str, names: LoopNames) -> Expr:
        indices, extents, names = self.loops(node, names)
        body = self.expression(node.elt, names)
        if (kind in ("any", "all")) != (body.dtype is bool_) and not (kind in ("min", "max") and body.dtype is bool_):
            raise self.error(node, f"{kind} of {body.dtype.name}")
        return Reduce(kind, indices, body, extents)

    def loops(self, node: ast.GeneratorExp, names: LoopNames) -> tuple[tuple[Index, ...], tuple[Expr, ...], LoopNames]:
        """(the indices of `for i in range(n) ...`, how far each runs, the names inside)."""
        indices, extents = list[Index](), list[Expr]()
        for each in node.generators:
            if not isinstance(each.target, ast.Name) or each.ifs or each.is_async:
                raise self.error(node, "expected `for index in range(n)`")
            index, extent, _, _ = self.iterations(each.iter, each.target.id, names, ("range",))
            if index in indices:
                raise self.error(node, f"two loops have the index {index}")
            indices.append(index)
            extents.append(extent)
            names = names.with_scalars(index)
        return tuple(indices), tuple(extents), names

    def iterations(self, node: ast.expr, name: str, names: LoopNames,
                   kinds: Sequence[str]) -> tuple[Index, Expr, Expr, str]:
        """(the index, how far it runs, its grain, the kind) of `kind(n, most=m, grain=g)`."""
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[iterations]) if kind in kinds:
                keywords = self.keywords(node)
                if keywords.keys() <= {"most"} | ({"grain"} if kind == "parallel" else set()):
                    extent = self.position(iterations, names)
                    grain = self.position(keywords["grain"], names) if "grain" in keywords else size(1)
                    most = self.dim(keywords["most"]) if "most" in keywords else self.dim_of(iterations, extent)
                    return Index(name, most), extent, grain, kind
        listed = " or ".join(f"{kind}(n)" for kind in kinds)
        raise self.error(node, f"expected {listed}, found {ast.unparse(node)[:80]}")

    # ------------------------------------------------------------ sizes

    def dim(self, node: ast.expr) -> Dim:
        """A size, whose symbols are known from then on."""
        found: Dim = self.size(node)
        self.symbols |= symbols(found)
        return found

    def dim_of(self, node: ast.expr, x: Expr) -> Dim:
        """The size that an expression is."""
        match x:
            case Const(value=int() as value):
                return value
            case SizeOf(dim=SymbolicDim() as dim):
                return dim
        raise self.error(node, "a loop that ends at no size says `most=` how often it runs at most")

    def axis(self, node: ast.expr, names: LoopNames) -> tuple[Index, Expr]:
        """(the index, how far it runs) of `i < n`, or `i < iterations <= n`."""
        match node:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt()], comparators=[extent]):
                found = self.dim(extent)
                return Index(name, found), size(found)
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt(), ast.LtE()], comparators=[iterations, most]):
                return Index(name, self.dim(most)), self.position(iterations, names)
        raise self.error(node, f"expected `index < size`, found {ast.unparse(node)[:80]}")
