"""`assert` and `match` on values -> `if`, which is converted in its turn."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tenon.capture.convert.ast_templates import HELPER, expression, statements
from tenon.capture.convert.scope import StatementRewriter

SUBJECT = "_subject"
OF_ONE_VALUE = frozenset({"bool", "int", "float", "complex", "str", "bytes"})   # `int(x)` binds the number itself


class Cases(StatementRewriter):
    """Rewrites the statements of one scope."""

    def __init__(self) -> None:
        self.count = 0

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
        subject = f"{HELPER}_{self.count}{SUBJECT}"
        return [*statements(f"{subject} = SUBJECT", node.subject, SUBJECT=node.subject),
                *_chain(node.cases, subject)]


def _is_simple(case: ast.match_case) -> bool:
    """Whether the pattern is a value, a class of numbers or text, several of these, a name, or `_`."""
    pattern, _ = _named(case.pattern)
    return pattern is None or all(map(_is_plain, pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]))


def _is_plain(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchValue() | ast.MatchSingleton():
            return True
        case ast.MatchClass(cls=ast.Name(id=name), patterns=[], kwd_patterns=[]):
            return name in OF_ONE_VALUE
    return False


def _named(pattern: ast.pattern) -> tuple[ast.pattern | None, str | None]:
    """A pattern, None if anything fits, and the name that is bound to the subject."""
    match pattern:
        case ast.MatchAs(pattern=inner, name=name):
            return inner, name
        case ast.MatchClass(cls=ast.Name(id=kind), patterns=[ast.MatchAs(pattern=None, name=name)], kwd_patterns=[]):
            if kind in OF_ONE_VALUE:
                return ast.copy_location(ast.MatchClass(pattern.cls, [], [], []), pattern), name
    return pattern, None


def _chain(cases: Sequence[ast.match_case], subject: str) -> list[ast.stmt]:
    """The first case, and the others where it does not fit."""
    if not cases:
        return []
    case, rest = cases[0], _chain(cases[1:], subject)
    pattern, name = _named(case.pattern)
    bind = [] if name is None else statements(f"{name} = {subject}", case.pattern)
    fits = None if pattern is None else _fits(pattern, subject)
    if fits is None or not bind:
        tests = [x for x in (fits, case.guard) if x is not None]
        if not tests:
            return [*bind, *case.body]
        test = tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), tests), tests[1])
        return [*bind, ast.copy_location(ast.If(test, case.body, rest), test)]
    if case.guard is None:
        return [ast.copy_location(ast.If(fits, [*bind, *case.body], rest), fits)]
    found = f"{subject.removesuffix(SUBJECT)}_fits_{len(cases)}"
    guarded = statements(f"if GUARD:\n    {found} = True\n    BODY", case.guard, GUARD=case.guard, BODY=case.body)
    return statements(f"{found} = False\nif FITS:\n    BIND\nif not {found}:\n    REST", case.guard, FITS=fits,
                      BIND=[*bind, *guarded], REST=rest or [ast.copy_location(ast.Pass(), case.guard)])


def _fits(pattern: ast.pattern, subject: str) -> ast.expr:
    """The condition that the subject has the value, or the class, of the pattern."""
    def compare(operator: ast.cmpop, value: ast.expr) -> ast.expr:
        name = ast.copy_location(ast.Name(subject, ast.Load()), pattern)
        return ast.copy_location(ast.Compare(name, [operator], [value]), pattern)
    match pattern:
        case ast.MatchValue(value=value):
            return compare(ast.Eq(), value)
        case ast.MatchSingleton(value=value):
            return compare(ast.Is(), ast.copy_location(ast.Constant(value), pattern))
        case ast.MatchClass(cls=kind):
            return expression(f"isinstance({subject}, KIND)", pattern, KIND=kind)
        case ast.MatchOr(patterns=patterns):
            return ast.copy_location(ast.BoolOp(ast.Or(), [_fits(x, subject) for x in patterns]), pattern)
    raise AssertionError(pattern)
