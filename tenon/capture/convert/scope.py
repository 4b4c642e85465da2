"""Statements -> the variables of their scope that they bind, and those that are read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def nodes_of(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These nodes and all below them, but for what runs in another scope."""
    for node in nodes:
        yield node
        if isinstance(node, OWN_SCOPE):
            continue
        if isinstance(node, COMPREHENSIONS):
            yield from (x for x in ast.walk(node) if isinstance(x, ast.NamedExpr))
            yield from (x.target for x in ast.walk(node) if isinstance(x, ast.NamedExpr))
            continue
        yield from nodes_of(ast.iter_child_nodes(node))


class StatementRewriter(ast.NodeTransformer):
    """Visits the statements of one scope: no expressions, and nothing that runs in another scope."""

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, (*OWN_SCOPE, ast.expr)):
            return node
        found: ast.AST | list[ast.stmt] = super().visit(node)
        return found


def bound_by(statements: Iterable[ast.AST]) -> list[str]:
    """The variables that the statements bind or delete, in order, but for those declared global."""
    found: dict[str, None] = {}
    declared: set[str] = set()
    for node in nodes_of(statements):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                found[name] = None
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = None
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found[name] = None
            case ast.MatchMapping(rest=str(name)):
                found[name] = None
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update(dict.fromkeys((alias.asname or alias.name).split(".")[0] for alias in aliases))
            case ast.Global(names=names):
                declared.update(names)
    return [name for name in found if name not in declared and name != "*"]


def globals_of(statements: Iterable[ast.AST]) -> set[str]:
    """The names declared global in this scope."""
    return {name for node in nodes_of(statements) if isinstance(node, ast.Global) for name in node.names}


def reads(nodes: Iterable[ast.AST]) -> list[str]:
    """Every variable read, once for each time, also from inner functions."""
    return [x.id for node in nodes for x in ast.walk(node)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load | ast.Del)] + \
           [x.target.id for node in nodes for x in ast.walk(node)
            if isinstance(x, ast.AugAssign) and isinstance(x.target, ast.Name)]


def contains(nodes: Iterable[ast.AST], kinds: tuple[type, ...]) -> bool:
    """Whether a node of such a kind stands in this scope."""
    return any(isinstance(x, kinds) for x in nodes_of(nodes))


def mangled(name: str, owner: str | None) -> str:
    """The name as the compiler writes it inside the class `owner`."""
    if owner is None or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{owner.lstrip('_')}{name}" if owner.strip("_") else name
