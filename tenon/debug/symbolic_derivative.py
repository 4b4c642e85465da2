"""A scalar function -> its formula, and the formula of its derivative: symbolic differentiation, for comparison.

An expression is a tree, as on paper, so what occurs twice is written twice.  The derivative of a tree grows much faster
than the tree ("expression swell"), while the gradient of a graph, which shares what it uses twice, stays as long as the
graph.  The rules are those of the operators: a derivative is what an operator's `vjp` does to symbols.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.autodiff import open_composites
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Argument, Held, Source
from tenon.capture.result_leaves import FromGraph, FromOutside, OneOf, ResultNest
from tenon.errors import ArgumentError, GradientError
from tenon.graph.build import trace
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.graph.op import OPS, Op
from tenon.jit import jit
from tenon.locks import cached_property
from tenon.ops.branches import cond
from tenon.records import dataclass
from tenon.tensor import Tensor, asarray, tensor
from tenon.types import TensorType, float64

SCALAR = TensorType(float64, ())
UNCHANGED = ("broadcast_to", "cast", "full_op", "positive", "reshape")     # of one element, these are the element
INFIX = {"add": ("+", 1), "subtract": ("-", 1), "multiply": ("*", 2), "divide": ("/", 2), "power": ("**", 4)}
FOLDED = (*INFIX, "negative", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
NEGATIVE, ATOM = 3, 5


@dataclass(frozen=True, eq=False)
class Expression:
    """A number, a symbol, or an operator applied to expressions.

    >>> from tenon.debug.symbolic_derivative import expression
    >>> f = expression(lambda x: x * tn.sin(x))
    >>> print(f)
    x * sin(x)
    >>> print(f.derivative("x"))
    sin(x) + x * cos(x)
    >>> f.derivative("x").evaluate(x=0.0)
    0.0
    """

    head: Any                               # a float, a name, or an Op
    parts: tuple[Expression, ...] = ()

    @cached_property
    def size(self) -> int:
        """The number of numbers, symbols and operators in the tree, each counted as often as it is written."""
        return 1 + sum(part.size for part in self.parts)

    def derivative(self, name: str) -> Expression:
        """The expression of the derivative with respect to a symbol."""
        if not isinstance(self.head, Op):
            return Expression(float(self.head == name))
        total = ZERO
        for partial, part in zip(partials(self), self.parts, strict=True):
            if partial.head != 0.0:     # a condition, which has no derivative, changes nothing
                total = plus(total, times(partial, part.derivative(name)))
        return total

    def evaluate(self, **values: float) -> float:
        """The value when the symbols have these values."""
        return float(_evaluate(self, {name: tensor(float(x), dtype=float64) for name, x in values.items()}, {}))

    def __str__(self) -> str:
        return _text(self)[0]

    def __repr__(self) -> str:
        return f"Expression({self})"


def expression(f: Callable[..., Any]) -> Expression:
    """The formula of a scalar function, jitted or not; its symbols are the function's parameters.

    A branch on a tensor is `where(condition, x, y)`.  Raises ArgumentError where the function computes anything but
    scalars, has a loop whose iterations the numbers decide, or changes something; CaptureError where it is no one
    graph.

    >>> print(tn.debug.expression(lambda x: x * 2 if x > 0 else -x))
    where(greater(x, 0), x * 2, -x)
    """
    names = [p.name for p in inspect.signature(f).parameters.values()]
    jitted: Any = f if isinstance(f, Jitted) else jit(f)
    captured = jitted.capture(*(tensor(0.5, dtype=float64) for _ in names))
    if captured.assigned or captured.effects or captured.output_effects or captured.failed is not None:
        raise ArgumentError("a formula is of a function that gives a number and does nothing else")
    symbols = [Expression(name) for name in names]
    results = of_graph(captured.graph, [source(s, symbols) for s in captured.sources])
    return returned(captured.output, symbols, results)


def returned(nest: ResultNest, symbols: Sequence[Expression], results: Sequence[Expression]) -> Expression:
    """What a captured function returns."""
    match nest.leaves:
        case (FromGraph() as leaf,):
            return results[leaf.index]
        case (FromOutside() as leaf,):
            return source(leaf.source, symbols)
        case (OneOf(options=((FromGraph() as condition, first), (_, second))),):
            arms = (returned(arm, symbols, results) for arm in (first, second))
            return simplified(OPS["where"], (results[condition.index], *arms))
        case ((int() | float() | Tensor()) as leaf,):
            return Expression(outside(leaf))
    raise ArgumentError(f"a formula is of a function that gives a number, not {len(nest.leaves)} things")


def source(source: Source, symbols: Sequence[Expression]) -> Expression:
    """An input of a captured graph: a parameter of the function, or a number that it reads from elsewhere."""
    if isinstance(source, Argument):
        return symbols[source.position]
    if isinstance(source, Held):
        return Expression(outside(source.holder))
    raise ArgumentError("a formula has numbers, and the function reads a gradient")


def outside(x: Any) -> float:
    """A scalar that a function reads from elsewhere."""
    found = asarray(x)
    if found.shape != ():
        raise ArgumentError(f"a formula has scalars, and the function reads {found.type}")
    return float(found)


def of_graph(graph: Graph, inputs: list[Expression]) -> list[Expression]:
    """The results of a graph of scalars as expressions of its parameters."""
    graph = open_composites(graph)
    values: dict[Value, Expression] = dict(zip(graph.params, inputs, strict=True))

    def read(x: Any) -> Expression:
        return number(x) if isinstance(x, Literal) else values[x]
    for node in graph.nodes:
        parts = tuple(read(x) for x in node.inputs if x is not None)
        if node.op.name == "constant" and len(node.attrs["data"]) == 1:
            values[node.output] = Expression(float(node.attrs["data"][0]))
        elif node.op.name in UNCHANGED and node.output.size == 1:
            values[node.output] = parts[0]
        elif node.op is cond:
            values.update(zip(node.outputs, chosen(node, parts), strict=True))
        elif len(node.outputs) == 1 and node.output.shape == () and not (node.attrs or node.graphs):
            values[node.output] = simplified(node.op, parts)
        else:
            raise ArgumentError(f"a formula has scalars and operators of scalars, not {node.op.name}: "
                                f"{node.output.type}", where=node.loc)
    return [values[r] for r in graph.results]


def chosen(node: Node, parts: Sequence[Expression]) -> list[Expression]:
    """What a branch gives: in each place the expression of one arm or the other."""
    condition, *operands = parts
    arms = (of_graph(node.attrs[name], operands) for name in ("true", "false"))
    return [simplified(OPS["where"], (condition, a, b)) for a, b in zip(*arms, strict=True)]


def number(x: Literal) -> Expression:
    """A literal of a graph."""
    if isinstance(x.value, complex):
        raise ArgumentError(f"a formula has real numbers, not {x.value}")
    return Expression(float(x.value))


def partials(e: Expression) -> list[Expression]:
    """The derivative of an operator with respect to each of its inputs, as expressions of those."""
    return pulled(e.head, Expression(1.0), e, e.parts)


def pulled(op: Op, g: Expression, y: Expression, parts: tuple[Expression, ...]) -> list[Expression]:
    """What the operator's gradient rule makes of the symbols: g times the derivative with respect to each input."""
    if op.vjp is None:
        raise GradientError(f"{op.name} has no derivative")
    found: list[Expression] = []
    for k in range(len(parts)):
        def rule(g: Any, y: Any, *xs: Any, k: int = k) -> Any:
            assert op.vjp is not None
            gradient = op.vjp(g, y, *xs)[k]
            gradient = gradient() if callable(gradient) and not isinstance(gradient, Value) else gradient
            return 0.0 if gradient is None else gradient
        graph = trace(rule, *[SCALAR] * (len(parts) + 2), name=op.name)
        found += of_graph(graph, [g, y, *parts])
    return found


# ---------------------------------------------------------------- the least of simplification

def simplified(op: Op, parts: tuple[Expression, ...]) -> Expression:
    """The operator on these parts, without 0 * x, 1 * x, x + 0 and the like; numbers are computed."""
    numbers = [part.head for part in parts if isinstance(part.head, float)]
    if len(numbers) == len(parts) and op.name in FOLDED:
        return Expression(float(op(*(tensor(x, dtype=float64) for x in numbers))))
    match op.name, parts:
        case ("bitwise_invert" | "logical_not"), (Expression(float(truth)),):
            return Expression(1.0 - truth)
        case ("bitwise_and" | "logical_and"), (Expression(float(left)), Expression(float(right))):
            return Expression(left * right)
        case "where", (Expression(float(condition)), a, b):
            return a if condition else b
        case "add", (a, b):
            return plus(a, b)
        case "multiply", (a, b):
            return times(a, b)
        case ("subtract", (a, Expression(0.0))) | ("divide", (a, Expression(1.0))) | ("power", (a, Expression(1.0))):
            return a
        case "subtract", (Expression(0.0), b):
            return simplified(OPS["negative"], (b,))
        case "divide", (Expression(0.0), _):
            return ZERO
    return Expression(op, parts)


def plus(a: Expression, b: Expression) -> Expression:
    """The sum."""
    if a.head == 0.0 or b.head == 0.0:
        return b if a.head == 0.0 else a
    return Expression(OPS["add"], (a, b))


def times(a: Expression, b: Expression) -> Expression:
    """The product."""
    if a.head == 0.0 or b.head == 0.0:
        return ZERO
    if a.head == 1.0 or b.head == 1.0:
        return b if a.head == 1.0 else a
    if a.head == -1.0 or b.head == -1.0:
        return Expression(OPS["negative"], (b if a.head == -1.0 else a,))
    return Expression(OPS["multiply"], (a, b))


ZERO = Expression(0.0)


# ---------------------------------------------------------------- values and text

def _evaluate(e: Expression, values: Mapping[str, Tensor], known: dict[int, Any]) -> Any:
    if id(e) not in known:
        if isinstance(e.head, Op):
            known[id(e)] = e.head(*(_evaluate(part, values, known) for part in e.parts))
        elif isinstance(e.head, str) and e.head not in values:
            raise ArgumentError(f"the symbol {e.head} has no value", hint=f"evaluate({e.head}=...)")
        else:
            known[id(e)] = values[e.head] if isinstance(e.head, str) else tensor(e.head, dtype=float64)
    return known[id(e)]


def _text(e: Expression) -> tuple[str, int]:
    """The text, and how tightly it binds."""
    if not isinstance(e.head, Op):
        text = e.head if isinstance(e.head, str) else f"{e.head:g}"
        return text, NEGATIVE if text.startswith("-") else ATOM
    if e.head.name in INFIX:
        sign, strength = INFIX[e.head.name]
        right_binds = e.head.name in ("subtract", "divide")
        left, right = e.parts
        inner = _within(left, strength + (e.head.name == "power")), _within(right, strength + right_binds)
        return f"{inner[0]} {sign} {inner[1]}" if strength < 4 else f"{inner[0]}**{inner[1]}", strength
    if e.head.name == "negative":
        return f"-{_within(e.parts[0], NEGATIVE)}", NEGATIVE
    return f"{e.head.name}({', '.join(_text(part)[0] for part in e.parts)})", ATOM


def _within(e: Expression, strength: int) -> str:
    text, own = _text(e)
    return text if own >= strength else f"({text})"
