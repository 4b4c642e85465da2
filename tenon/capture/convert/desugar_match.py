"""`assert` and `match` on values -> `if`, which is converted in its turn."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tenon.capture.convert.scope import OWN_SCOPE
from tenon.capture.convert.template import HELPER, statements


class Cases(ast.NodeTransformer):
    """Rewrites the statements of one scope."""

    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, (*OWN_SCOPE, ast.expr)):
            return node
        found: ast.AST | list[ast.stmt] = super().visit(node)
        return found

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt]:
        if not __debug__:
            return node
        if node.msg is None:
            return statements("if not TEST:\n    raise _tenon.AssertionError", node, TEST=node.test)
        return statements("if not TEST:\n    raise _tenon.AssertionError(MESSAGE)", node, TEST=node.test,
                          MESSAGE=node.msg)

    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not all(map(_is_simple, node.cases)):
            return node
        self.count += 1
        subject = f"{HELPER}_temp_subject_{self.count}"
        return [*statements(f"{subject} = SUBJECT", node.subject, SUBJECT=node.subject),
                *_chain(node.cases, subject)]


def _is_simple(case: ast.match_case) -> bool:
    """Whether the pattern is a value, several values, a name, or `_`."""
    match case.pattern:
        case ast.MatchAs(pattern=None) | ast.MatchValue() | ast.MatchSingleton():
            return True
        case ast.MatchOr(patterns=patterns):
            return all(isinstance(x, ast.MatchValue | ast.MatchSingleton) for x in patterns)
    return False


def _chain(cases: Sequence[ast.match_case], subject: str) -> list[ast.stmt]:
    """The first case, and the others where it does not fit."""
    if not cases:
        return []
    case, rest = cases[0], _chain(cases[1:], subject)
    pattern, test = case.pattern, case.guard
    bind: list[ast.stmt] = []
    if isinstance(pattern, ast.MatchAs):
        if pattern.name:
            bind = statements(f"NAME = {subject}", pattern, NAME=pattern.name)
            for target in ast.walk(bind[0]):
                if isinstance(target, ast.Name) and target.id == pattern.name:
                    target.ctx = ast.Store()
    else:
        fits = _fits(pattern, subject)
        test = fits if test is None else ast.copy_location(ast.BoolOp(ast.And(), [fits, test]), test)
    if test is None:
        return [*bind, *case.body]
    return [*bind, ast.copy_location(ast.If(test, case.body, rest), test)]


def _fits(pattern: ast.pattern, subject: str) -> ast.expr:
    """The condition that the subject has the value of the pattern."""
    def compare(operator: ast.cmpop, value: ast.expr) -> ast.expr:
        name = ast.copy_location(ast.Name(subject, ast.Load()), pattern)
        return ast.copy_location(ast.Compare(name, [operator], [value]), pattern)
    match pattern:
        case ast.MatchValue(value=value):
            return compare(ast.Eq(), value)
        case ast.MatchSingleton(value=value):
            return compare(ast.Is(), ast.copy_location(ast.Constant(value), pattern))
        case ast.MatchOr(patterns=patterns):
            return ast.copy_location(ast.BoolOp(ast.Or(), [_fits(x, subject) for x in patterns]), pattern)
    raise AssertionError(pattern)
