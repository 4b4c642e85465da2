"""Statements of a function -> a function of the variables that they take, which gives those that they leave.

    t = time.time()                                     def f(x, t):
    y = x * 2                   y, z, taken from x              y = x * 2
    z = y + 1                   and given on:                   z = y + 1
    print(t, y, z)                                              return y, z

A variable that may be unbound is handed over as UNBOUND, and is unbound again on the other side.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from typing import Any

from tenon.capture.convert.ast_templates import statements
from tenon.capture.convert.rewrite import compiled
from tenon.capture.convert.scope import bound_by, globals_of, nodes_of
from tenon.capture.convert.source_definitions import Definition, define
from tenon.capture.split.local_liveness import NOTHING, Names
from tenon.records import dataclass

NONE = "_tenon_unbound"         # the name of UNBOUND in code that is split


class UNBOUND:
    """What stands for a variable that has no value."""


@dataclass(frozen=True)
class Body:
    """Statements, the variables that they take and give, and which of them may be unbound.

    `gives` of None: they return what the function returns.  `handled`: what is live where an exception is caught.
    """

    statements: tuple[ast.stmt, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...] | None
    unsure_takes: Names = NOTHING
    unsure_gives: Names = NOTHING
    handled: Names = NOTHING

    def begin(self) -> Iterator[ast.stmt]:
        """Statements that make variables unbound which were handed over so."""
        for name in sorted(self.unsure_takes):
            yield from when_unbound(name, self.statements[0])

    def end(self) -> Iterator[ast.stmt]:
        """Statements that give the variables."""
        last = self.statements[-1]
        for name in sorted(self.unsure_gives):
            yield from or_unbound(name, last)
        if self.gives:
            yield from statements(f"return {', '.join(self.gives)}", last)


def when_unbound(name: str, at: ast.AST) -> list[ast.stmt]:
    """Make a variable unbound that holds UNBOUND."""
    return statements(f"if {name} is {NONE}:\n    del {name}", at)


def or_unbound(name: str, at: ast.AST) -> list[ast.stmt]:
    """Give UNBOUND to a variable that is unbound."""
    return statements(f"try:\n    {name}\nexcept NameError:\n    {name} = {NONE}", at)


def made(body: list[ast.stmt], arguments: ast.arguments, function: types.FunctionType, definition: Definition,
         more: Mapping[str, Any]) -> types.FunctionType:
    """A function with this body in the place of another, with which it shares globals and cells."""
    declared = sorted(globals_of(ast.iter_child_nodes(definition.node)))
    bound = {x.id for x in nodes_of(body) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store | ast.Del)}
    bound |= set(bound_by(body))
    head: list[ast.stmt] = [ast.Global([name]) for name in declared if name in bound]
    head += [ast.Nonlocal([name]) for name in function.__code__.co_freevars if name in bound]
    for x in head:
        ast.copy_location(x, body[0])
    node = ast.copy_location(ast.FunctionDef(function.__code__.co_name, arguments, head + body, [], None), body[0])
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {name: types.CellType(x) for name, x in more.items()}
    own = Definition(node, definition.owner)
    code = compiled(node, own, function.__code__, tuple(more))
    define(code, own)
    new = types.FunctionType(code, function.__globals__, function.__name__, None,
                             tuple(cells[name] for name in code.co_freevars))
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    return new


def parameters(names: tuple[str, ...], at: ast.AST) -> ast.arguments:
    """The arguments of a function that takes variables."""
    listed = [ast.copy_location(ast.arg(name), at) for name in names]
    return ast.arguments([], listed, None, [], [], None, [])


def as_function(body: Body, function: types.FunctionType, definition: Definition) -> types.FunctionType:
    """The statements as they are."""
    more = {NONE: UNBOUND} if body.unsure_takes or body.unsure_gives else {}
    whole = [*body.begin(), *body.statements, *body.end()]
    return made(whole, parameters(body.takes, body.statements[0]), function, definition, more)
