"""Syntax trees -> dimensions: what the text of a graph writes for a size."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tenon.dims.symbolic_dim import MAX_ATOMS, Dim, maximum, symbol, terms_of

LARGEST_COEFFICIENT = (1 << 63) - 1


def parse_dim(node: ast.expr) -> Dim:
    """The dimension that a syntax tree spells; raises ValueError for anything but +, -, *, // and max of sizes."""
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return _readable(value)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -parse_dim(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _readable(_ARITHMETIC[type(op)](parse_dim(left), parse_dim(right)))
        case ast.Call(func=ast.Name(id="max"), args=[left, right], keywords=[]):
            return _readable(maximum(parse_dim(left), parse_dim(right)))
    raise ValueError(f"not a size: {ast.unparse(node)}")


def _readable(dim: Dim) -> Dim:
    """The dimension; raises ValueError where arithmetic on it would take long, or leave 64 bits."""
    if any(abs(coefficient) > LARGEST_COEFFICIENT for _, coefficient in terms_of(dim)):
        raise ValueError("a number in a size does not fit in 64 bits")
    if _atoms(dim) > MAX_ATOMS:
        raise ValueError(f"a size that is made of more than {MAX_ATOMS} others")
    return dim


def _atoms(dim: Dim) -> int:
    """How many terms, symbols, quotients and maxima a dimension is made of."""
    terms = terms_of(dim)
    inner = (part for monomial, _ in terms for atom in monomial if not isinstance(atom, str) for part in atom.parts())
    return sum(1 + len(monomial) for monomial, _ in terms) + sum(map(_atoms, inner))


def _quotient(left: Dim, right: Dim) -> Dim:
    if isinstance(right, int) and right == 0:
        raise ValueError("a size divided by 0")
    return left // right


_ARITHMETIC: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda x, y: x + y, ast.Sub: lambda x, y: x - y, ast.Mult: lambda x, y: x * y, ast.FloorDiv: _quotient,
}
