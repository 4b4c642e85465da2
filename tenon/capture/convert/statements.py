"""`if`, `while` and `for` -> the same statements, gone through as often as the graph needs (see the package's text)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tenon.capture.convert.ast_templates import HELPER, statements
from tenon.capture.convert.desugar_expressions import unpacking
from tenon.capture.convert.scope import StatementRewriter, bound_by, contains, globals_of, mangled, reads

PRIVATE = tuple(f"{HELPER}_{kind}_" for kind in ("fork", "loop", "temp", "item"))     # no state of the user's program
YIELDS = (ast.Yield, ast.YieldFrom, ast.Await)

BRANCH = """
for FORK in _tenon.branch(TEST) or _tenon.fork(_tenon.locals(), NAMES, YIELDS):
    try:
        if FORK.taken:
            BODY
        else:
            OTHER
    except FORK.caught:
        FORK.raised()
    if FORK.data:
        ENTER
"""

WHILE = """
LOOP = _tenon.loop(NAMES, LIVE, BROKEN, YIELDS)
while True:
    try:
        if not LOOP.ended:
            TESTING
        if LOOP.data:
            ENTER
        if not LOOP.go:
            break
        BODY
    except LOOP.caught:
        LOOP.raised()
"""

FOR = """
LOOP = _tenon.each(ITER, NAMES, LIVE, BROKEN, YIELDS)
if LOOP.data:
    LOOP.begin(_tenon.locals())
for ITEM in LOOP.take():
    if LOOP.data:
        ENTER
    try:
        BODY
    except LOOP.caught:
        LOOP.raised()
    if LOOP.data:
        LOOP.leave(_tenon.locals())
    STOP
if LOOP.data:
    AGAIN
"""


class Statements(StatementRewriter):
    """Rewrites the statements of one function."""

    def __init__(self, function: ast.FunctionDef, owner: str | None):
        self.owner, self.count = owner, 0
        self.globals = globals_of(function.body)
        self.outer = {name for node in ast.walk(function) if isinstance(node, ast.Nonlocal) for name in node.names}
        self.reads = Counter(reads(function.body))
        self.loops = [(x, bound_by([x.target]), Counter(reads(x.body)))
                      for x in ast.walk(function) if isinstance(x, ast.For)]

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{HELPER}_{kind}_{self.count}"

    def state(self, body: Sequence[ast.AST]) -> list[str]:
        """The variables whose values the statements may change."""
        return [n for n in bound_by(body) if n not in self.globals and not n.startswith(PRIVATE)]

    def live(self, names: Sequence[str], loop: ast.AST) -> list[str]:
        """Those that are read outside of the loop."""
        inside = Counter(reads([loop]))
        within = {id(x) for x in ast.walk(loop)}
        for other, bound, read in self.loops:
            if id(other) not in within and not any(x is loop for x in ast.walk(other)):
                inside.update({n: read[n] for n in bound})      # which binds them itself
        return [n for n in names if n in self.outer or self.reads[n] > inside[n]]

    def strings(self, names: Sequence[str], at: ast.AST) -> ast.expr:
        listed: list[ast.expr] = [ast.Constant(mangled(n, self.owner)) for n in names]
        return ast.fix_missing_locations(ast.copy_location(ast.Tuple(listed, ast.Load()), at))

    def enter(self, value: str, names: Sequence[str], at: ast.AST) -> list[ast.stmt]:
        """Give the variables the values of `value`, and unbind those that have none."""
        if not names:
            return statements(value, at)
        text = f"{', '.join(names)}, = {value}\n" + "".join(
            f"if {n} is _tenon.UNBOUND:\n    del {n}\n" for n in names)
        return statements(text, at)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        names = self.state([*node.body, *node.orelse])
        yields = contains([*node.body, *node.orelse], YIELDS)
        self.generic_visit(node)
        fork = self.name("fork")
        return statements(
            BRANCH, node.test, FORK=fork, TEST=node.test, NAMES=self.strings(names, node.test),
            YIELDS=_constant(yields), BODY=node.body, OTHER=node.orelse or statements("pass", node.test),
            ENTER=self.enter(f"{fork}.leave(_tenon.locals())", names, node.test))

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        names = self.state([node])
        live, yields, broken = self.live(names, node), contains([node], YIELDS), node.broken  # type: ignore[attr-defined]
        loop = self.name("loop")
        testing = statements("LOOP.test(TEST)", node.test, LOOP=loop, TEST=node.test)
        if broken:
            passed = self.name("test")
            names.append(passed)
            testing = [*self._visited(statements(
                f"if _tenon.negate({broken}):\n    {passed} = _tenon.truth(TEST)\nelse:\n    {passed} = False",
                node.test, TEST=node.test)), *statements(f"LOOP.test({passed})", node.test, LOOP=loop)]
        self.generic_visit(node)
        return statements(
            WHILE, node.test, LOOP=loop, NAMES=self.strings(names, node.test), LIVE=self.strings(live, node.test),
            YIELDS=_constant(yields), BROKEN=_constant(broken), TESTING=testing, BODY=node.body,
            ENTER=self.enter(f"{loop}.leave(_tenon.locals())", names, node.test))

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        names = self.state([node.target, *node.body])
        live, yields, broken = self.live(names, node), contains([node], YIELDS), node.broken  # type: ignore[attr-defined]
        loop, item = self.name("loop"), self.name("item")
        body = [*_assigned(node.target, item), *node.body]
        if broken:
            body = statements(f"if _tenon.negate({broken}):\n    BODY", node.target, BODY=body)
        body = self._visited(body)
        return statements(
            FOR, node.iter, LOOP=loop, ITER=node.iter, ITEM=item, NAMES=self.strings(names, node.iter),
            LIVE=self.strings(live, node.iter), YIELDS=_constant(yields), BROKEN=_constant(broken), BODY=body,
            ENTER=self.enter(f"{loop}.values", names, node.iter), AGAIN=self.enter(f"{loop}.values", names, node.iter),
            STOP=statements(f"if LOOP.stop({broken}):\n    break" if broken else "pass", node.iter, LOOP=loop))

    def _visited(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            found += new if isinstance(new, list) else [new]  # type: ignore[list-item]
        return found


def _assigned(target: ast.expr, item: str) -> list[ast.stmt]:
    """`target = item`."""
    value: ast.expr = ast.copy_location(ast.Name(item, ast.Load()), target)
    if isinstance(target, (ast.Tuple, ast.List)):
        value = unpacking(value, target)
    return [ast.copy_location(ast.Assign([target], value), target)]


def _constant(value: Any) -> ast.expr:
    return ast.Constant(value, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
