"""A condition that binds a variable in an operand -> statements, where each operand is asked for in an `if` of its own.

    if a and (n := b): ...      ->      _tenon_temp_test_1 = a
                                        if _tenon_temp_test_1: _tenon_temp_test_1 = (n := b)
                                        if _tenon_temp_test_1: ...

An operand of `and` and `or` becomes a function where a tensor decides whether it is needed, and a function binds
variables of its own.
"""

from __future__ import annotations

import ast

from tenon.capture.convert.ast_templates import HELPER, statements
from tenon.capture.convert.scope import StatementRewriter


class Walruses(StatementRewriter):
    """Rewrites the conditions of `if` and `while` in one scope."""

    def __init__(self) -> None:
        self.count = 0

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not _binds_later(node.test):
            return node
        name = self._name()
        asked = _operands(node.test, name)
        node.test = ast.copy_location(ast.Name(name, ast.Load()), node.test)
        return [*asked, node]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        """`while True`, which is left where the condition does not hold; `else` belongs to no other way out."""
        self.generic_visit(node)
        if not _binds_later(node.test):
            return node
        name, otherwise = self._name(), node.orelse
        leave = statements(f"if not {name}:\n    break", node.test)
        node.body = [*_operands(node.test, name), *leave, *node.body]
        node.test, node.orelse = ast.copy_location(ast.Constant(True), node.test), []
        return [node, *(statements(f"if not {name}:\n    BODY", node, BODY=otherwise) if otherwise else [])]

    def _name(self) -> str:
        self.count += 1
        return f"{HELPER}_test_{self.count}"


def _binds_later(test: ast.expr) -> bool:
    """Whether an operand behind the first binds a variable."""
    return isinstance(test, ast.BoolOp) and any(
        isinstance(x, ast.NamedExpr) for value in test.values for x in ast.walk(value)
        if value is not test.values[0] or _binds_later(value))


def _operands(test: ast.expr, name: str) -> list[ast.stmt]:
    """Statements after which the variable is as true as the condition."""
    if not isinstance(test, ast.BoolOp):
        return statements(f"{name} = not not TEST", test, TEST=test)
    asked = name if isinstance(test.op, ast.And) else f"not {name}"
    found = _operands(test.values[0], name)
    for value in test.values[1:]:
        found += statements(f"if {asked}:\n    BODY", value, BODY=_operands(value, name))
    return found
