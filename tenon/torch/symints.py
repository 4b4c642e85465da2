"""Sizes as PyTorch writes them, expressions over symbols, as Tenon's: integers, or polynomials over symbols."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy
import torch
from torch import fx

from tenon.dims.symbolic_dim import maximum
from tenon.ops.creation import as_number
from tenon.records import dataclass
from tenon.torch.aten_call import UnmappedOperator
from tenon.types import float64

Known = Mapping[sympy.Expr, Any]        # symbol -> the size that it stands for
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)


def size_of(size: Any, known: Known) -> Any:
    """A size in which PyTorch's symbols are replaced by what is known of them."""
    if isinstance(size, torch.SymInt):
        return _value(size.node.expr, known)
    return size


def sizes_known(given: Mapping[fx.Node, Any]) -> Known:
    """What PyTorch's symbols are in a call."""
    known: dict[Any, Any] = {}
    for node, value in given.items():
        if value is None:       # what keeps effects in order has no sizes
            continue
        fake = node.meta["val"]
        pairs: Any = zip(fake.shape, value.shape, strict=True) if isinstance(fake, torch.Tensor) else [(fake, value)]
        for symbolic, size in pairs:
            if isinstance(symbolic, (torch.SymInt, torch.SymFloat)) and symbolic.node.expr.is_Symbol:
                known[symbolic.node.expr] = size
    return known


def numbers_of(graph: fx.Graph, given: Mapping[fx.Node, Any], known: Known) -> dict[fx.Node, Any]:
    """The nodes that are no tensors: numbers, as far as sizes tell them, and graphs that operators hold."""
    found: dict[fx.Node, Any] = {node: x for node, x in given.items() if not isinstance(x, torch.Tensor)}
    for node in graph.nodes:
        if node.op == "get_attr" and isinstance(held := getattr(graph.owning_module, str(node.target), None),
                                                fx.GraphModule):
            found[node] = held
        value = node.meta.get("val")
        if node.op in ("placeholder", "call_function") and node not in found and isinstance(value, NUMBERS):
            try:
                found[node] = number_of(value, known)
            except UnmappedOperator:
                continue
    return found


@dataclass(frozen=True)
class OpenNumber:
    """A fraction of sizes that are symbols, such as n / (n - 1): a graph computes it."""

    expression: sympy.Expr
    known: Known

    def computed(self) -> Any:
        """It as operators on the sizes, float64; raises Unmapped for other functions of them than `_FRACTIONS`."""
        return _fraction(self.expression, self.known)


def number_of(number: Any, known: Known) -> Any:
    """A number of PyTorch's, of any kind; raises Unmapped where it is neither a size nor known."""
    if isinstance(number, (torch.SymFloat, torch.SymBool)):
        expression = number.node.expr
        if not all(isinstance(known.get(s), (int, float)) for s in expression.free_symbols):
            if isinstance(number, torch.SymFloat) and expression.free_symbols <= known.keys():
                return OpenNumber(expression, known)
            raise UnmappedOperator(f"a number {expression}")
        found = expression.xreplace({s: sympy.sympify(known[s]) for s in expression.free_symbols})
        return bool(found) if isinstance(number, torch.SymBool) else float(found)
    return size_of(number, known)


def _value(expression: sympy.Expr, known: Known) -> Any:
    if expression in known:
        return known[expression]
    if expression.is_Integer:
        return int(expression)
    if (rule := _RULES.get(type(expression).__name__)) is None:
        raise UnmappedOperator(f"a size of {expression}")
    return rule(*[_value(part, known) for part in expression.args])


def _fraction(expression: sympy.Expr, known: Known) -> Any:
    if expression.is_number:
        return float(expression)
    if expression.is_integer:
        return as_number(_value(expression, known), float64)
    if (rule := _FRACTIONS.get(type(expression).__name__)) is None:
        raise UnmappedOperator(f"a number {expression}")
    return rule(*[_fraction(part, known) for part in expression.args])


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnmappedOperator(f"a size of {base} to the power {exponent}")
    return math.prod([base] * exponent)


_RULES: dict[str, Callable[..., Any]] = {
    "Add": lambda *parts: sum(parts[1:], parts[0]),
    "Mul": lambda *parts: reduce(lambda x, y: x * y, parts),
    "Pow": _power, "PowByNatural": _power,
    "FloorDiv": lambda x, y: x // y, "CleanDiv": lambda x, y: x // y, "IntTrueDiv": lambda x, y: x / y,
    "CeilDiv": lambda x, y: -(-x // y),
    "Mod": lambda x, y: x % y, "PythonMod": lambda x, y: x % y,
    "ModularIndexing": lambda x, y, z: x // y % z,
    "Max": lambda *parts: reduce(maximum, parts),
    "Min": lambda *parts: -reduce(maximum, [-part for part in parts]),
}

_FRACTIONS: dict[str, Callable[..., Any]] = {
    "Add": _RULES["Add"], "Mul": _RULES["Mul"], "Pow": operator.pow, "FloatPow": operator.pow,
    "IntTrueDiv": operator.truediv, "FloatTrueDiv": operator.truediv, "ToFloat": operator.pos,
}
