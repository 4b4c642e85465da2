"""Whether statements compute with an array of NumPy's, or only make a tensor of it.

A variable of a function that is split may hold an array.  NumPy computes with it, as without `@tn.jit`: a graph would
make tensors of what are arrays, and not know their methods.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from typing import Any

CONVERSIONS = frozenset({"tensor", "asarray", "as_tensor", "from_numpy"})       # what makes a tensor of an array
ALIKE = frozenset({"shape", "ndim"})        # what is the same of both


def computes_with(nodes: Iterable[Any], names: Collection[str]) -> bool:
    """Whether these nodes of the syntax use such a variable for more than to make a tensor of it."""
    found = [x for node in nodes for x in ast.walk(node)]
    harmless = {id(x) for node in found for x in _converted(node)}
    return any(isinstance(x, ast.Name) and x.id in names and id(x) not in harmless for x in found)


def _converted(node: ast.AST) -> list[ast.expr]:
    """The operands of which a node makes tensors, or asks nothing else than what tensors answer alike."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[first, *_]) if name in CONVERSIONS:
            return [first]
        case ast.Call(func=ast.Name(id="len"), args=[first]):
            return [first]
        case ast.Attribute(value=value, attr=name) if name in ALIKE:
            return [value]
    return []
