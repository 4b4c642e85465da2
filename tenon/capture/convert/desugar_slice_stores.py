"""`x[i][j] = value` and `x[i].add_(1)`, whose slice `x[i]` nobody holds -> what stores the changed slice into `x`.

    x[i][j] = value    ->    _tenon.within(_tenon.place(x, i), j).item = value
    x[i].add_(1)       ->    _tenon.changing(_tenon.place(x, i), "add_")(1)

So does eager code, by the line that is running (see tenon/slice_stores.py), which rewritten code does not read as its
own.  The same expressions are meant here as there: names, attributes and numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from tenon.capture.convert.ast_templates import expression
from tenon.slice_stores import PLAIN

Visit = Callable[[ast.AST], ast.AST]


def is_slice(node: ast.AST) -> bool:
    """Whether an expression may be a slice that is read again to be stored to."""
    return isinstance(node, ast.Subscript) and all(
        isinstance(x, PLAIN) and not (isinstance(x, ast.Attribute) and is_private(x.attr)) for x in ast.walk(node))


def is_private(name: str) -> bool:
    """Whether a class gives an attribute another name than the source does."""
    return name.startswith("__") and not name.endswith("__")


def changes_slice(call: ast.AST) -> bool:
    """Whether a call may change a slice that nobody holds."""
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_slice(call.func.value) \
        and call.func.attr.endswith("_") and not call.func.attr.startswith("_")


def place(node: ast.Subscript, visit: Visit) -> ast.expr:
    """What stands for the place of a slice, and for those that it is a slice of."""
    inside = node.value
    if isinstance(inside, ast.Subscript):
        return expression("_tenon.within(PLACE, INDEX)", node, PLACE=place(inside, visit), INDEX=_key(node, visit))
    return expression("_tenon.place(HOLDER, INDEX)", node, HOLDER=visit(inside), INDEX=_key(node, visit))


def _key(node: ast.Subscript, visit: Visit) -> ast.expr:
    """What stands between brackets, as a value."""
    return expression("_tenon.key[INDEX]", node, INDEX=visit(node.slice))
