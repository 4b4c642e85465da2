"""A function -> its variables that inner functions share, so that a piece of it must not have a copy of its own.

An inner function keeps the variable, not the value.  Where the variable has one value, bound before the inner function
is made, that is the same.  Any other one stays a variable of the function itself: what binds it, and what makes a
function that keeps it, is no part of a piece.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from tenon.capture.convert.scope import COMPREHENSIONS, OWN_SCOPE, bound_by, nodes_of
from tenon.records import dataclass

Names = frozenset[str]
LOOPS = (ast.For, ast.While)
CONSUMING = frozenset({"sum", "any", "all", "max", "min", "list", "tuple", "dict", "set", "sorted"})    # a generator


@dataclass(frozen=True)
class Shared:
    """Variables that inner functions keep, and that have several values; `outer`: those that inner functions bind."""

    kept: Names
    outer: Names

    def holds(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether these nodes bind such a variable, or make what keeps it."""
        if not self.kept and not self.outer:
            return False
        used = {x.id for x in nodes_of(nodes) if isinstance(x, ast.Name)}
        inner = frozenset().union(*(_free(x) for x in _scopes(nodes)))
        return not self.kept.isdisjoint(bound_by(nodes)) or not self.kept.isdisjoint(inner) or \
            not self.outer.isdisjoint(used | inner)


def shared_by(node: ast.FunctionDef, own: Names) -> Shared:
    """The variables among `own` that inner functions share."""
    arguments = [x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)]
    bindings: dict[str, list[tuple[int, int]]] = {name: [(0, 0)] for name in arguments}
    for loop, x in _with_loops(node.body):
        for name in _bound_by_node(x):
            bindings.setdefault(name, []).extend([(x.lineno, x.col_offset)] * (2 if loop else 1))
    kept: set[str] = set()
    for scope in _scopes(node.body):
        for name in _free(scope) & own:
            places = bindings.get(name, [])
            if len(places) != 1 or places[0] > (scope.lineno, scope.col_offset):
                kept.add(name)
    outer = {name for scope in _scopes(node.body) for x in ast.walk(scope) if isinstance(x, ast.Nonlocal)
             for name in x.names}
    return Shared(frozenset(kept), frozenset(outer) & own)


def _scopes(nodes: Sequence[ast.AST]) -> Iterator[Any]:
    """What keeps variables of the function around these nodes."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as made, *others]) if name in CONSUMING:
                yield from _scopes([*ast.iter_child_nodes(made), *others, *node.keywords])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef() | ast.GeneratorExp():
                yield node
            case _:
                yield from _scopes(list(ast.iter_child_nodes(node)))


def _free(scope: ast.AST) -> Names:
    """The names that an inner function takes from outside, or more."""
    names = {x.id for x in ast.walk(scope) if isinstance(x, ast.Name)}
    if not isinstance(scope, (ast.FunctionDef, ast.Lambda)):
        return frozenset(names)
    body = scope.body if isinstance(scope, ast.FunctionDef) else [scope.body]
    own = {x.arg for x in ast.walk(scope.args) if isinstance(x, ast.arg)} | set(bound_by(body))
    lent = {name for x in ast.walk(scope) if isinstance(x, ast.Nonlocal) for name in x.names}
    defaults = {x.id for d in [*scope.args.defaults, *scope.args.kw_defaults] if d for x in ast.walk(d)
                if isinstance(x, ast.Name)}
    return frozenset(names - own | lent | (names & defaults) | _nested(body, own))


def _nested(body: Sequence[ast.AST], own: set[str]) -> Names:
    return frozenset().union(*(_free(x) for x in _scopes(body))) - own


def _with_loops(nodes: Sequence[ast.AST], loop: bool = False) -> Iterator[tuple[bool, Any]]:
    """The nodes of this scope, each with whether it may run again."""
    for node in nodes:
        yield loop, node
        if not isinstance(node, (*OWN_SCOPE, *COMPREHENSIONS)):
            yield from _with_loops(list(ast.iter_child_nodes(node)), loop or isinstance(node, LOOPS))


def _bound_by_node(node: ast.AST) -> list[str]:
    """The variables that a node itself binds, without what is in it."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return bound_by([node])
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name, name]
        case ast.MatchMapping(rest=str(name)):
            return [name, name]
        case ast.NamedExpr(target=ast.Name(id=name)):
            return [name]
    return []
