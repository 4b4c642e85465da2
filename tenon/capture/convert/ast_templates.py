"""Text with holes -> syntax that stands at a line of the user's."""

from __future__ import annotations

import ast
from typing import Any

HELPER = "_tenon"       # what the rewritten code calls, and the beginning of its own variables' names


def statements(text: str, at: ast.AST, **holes: Any) -> list[ast.stmt]:
    """The statements of `text`, at the place of `at`; a name among `holes` is replaced by its nodes, or its string."""
    filler = _Filler(holes, at)
    body: list[ast.stmt] = []
    for statement in ast.parse(text).body:
        filled = filler.visit(statement)
        body += filled if isinstance(filled, list) else [filled]
    return body


def expression(text: str, at: ast.AST, **holes: Any) -> ast.expr:
    """The one expression of `text`."""
    [statement] = statements(text, at, **holes)
    assert isinstance(statement, ast.Expr)
    return statement.value


class _Filler(ast.NodeTransformer):
    def __init__(self, holes: dict[str, Any], at: ast.AST):
        self.holes, self.at = holes, at

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name) and isinstance(
                self.holes.get(node.value.id), list):
            return self.holes[node.value.id]
        if isinstance(node, ast.Name) and node.id in self.holes:
            filled = self.holes[node.id]
            if isinstance(filled, ast.AST):
                return filled
            node.id = filled
        if isinstance(node, (ast.expr, ast.stmt, ast.excepthandler)):
            ast.copy_location(node, self.at)
        return self.generic_visit(node)
