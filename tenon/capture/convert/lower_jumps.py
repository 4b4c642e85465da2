"""`return`, `break` and `continue` inside other statements -> flags, and guards around what they pass over.

    while a:                          _tenon_broken_1 = False
        if b: break          ->       while a:                        # `a` is not asked for once broken
        c                                 _tenon_passed_1 = False
                                          if b: _tenon_broken_1 = _tenon_passed_1 = True
                                          if not _tenon_passed_1: c

`return` sets the flags of all loops around it as well, so every block tests one flag.
"""

from __future__ import annotations

import ast
from typing import Any

from tenon.capture.convert.ast_templates import HELPER, statements
from tenon.capture.convert.scope import OWN_SCOPE, contains, nodes_of
from tenon.capture.convert.source_definitions import Unconvertible
from tenon.records import dataclass, field

VALUE, DONE = f"{HELPER}_value", f"{HELPER}_done"
DEEPEST_GUARD = 4       # beyond it, guards stand one behind the other: Python nests at most 20 blocks
JUMPS = (ast.Return, ast.Break, ast.Continue)


def lower_jumps(function: ast.FunctionDef) -> None:
    """Lower the jumps of a function in place."""
    for node in nodes_of(function.body):
        if isinstance(node, ast.Try) and contains(node.finalbody, JUMPS):
            raise Unconvertible("it leaves a finally block by return, break or continue")
    inner = [x for x in nodes_of(function.body) if isinstance(x, ast.Return)]
    returns = bool(inner) and inner != function.body[-1:]
    body = list(function.body)
    if returns and not isinstance(body[-1], ast.Return):
        body.append(ast.copy_location(ast.Return(None), body[-1]))
    lowered = _JumpLowering(returns).block(body)
    if returns:
        first, last = function.body[0], function.body[-1]
        lowered = [*statements(f"{DONE} = False", first), *lowered,
                   *statements(f"return {HELPER}.result({VALUE})", last)]
    function.body = lowered


@dataclass
class _Loop:
    """The flags of one loop."""

    broken: str
    passed: str
    breaks: bool = False        # whether anything sets `broken`


@dataclass
class _JumpLowering:
    returns: bool                   # lower them too
    loops: list[_Loop] = field(default_factory=list)
    count: int = 0
    guards: int = 0

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements, what follows a jump under a guard."""
        lowered: list[ast.stmt] = []
        for k, statement in enumerate(body):
            jumps = self.passes_over(statement)
            lowered += self.statement(statement)
            rest = body[k + 1:]
            if jumps and rest:
                if self.guards >= DEEPEST_GUARD:
                    return lowered + self.one_by_one(rest)
                self.guards += 1
                guarded = self.block(rest)
                self.guards -= 1
                return lowered + self.guard(guarded)
        return lowered

    def one_by_one(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Each run of statements up to the next jump under a guard of its own."""
        lowered: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for statement in body:
            jumps = self.passes_over(statement)     # before it is lowered
            run += self.statement(statement)
            if jumps:
                lowered, run = lowered + self.guard(run), []
        return lowered + (self.guard(run) if run else [])

    def guard(self, body: list[ast.stmt]) -> list[ast.stmt]:
        flag = self.loops[-1].passed if self.loops else DONE
        return statements(f"if not {flag}:\n    BODY", body[0], BODY=body)

    def passes_over(self, statement: ast.stmt) -> bool:
        """Whether a jump in the statement may pass over what follows it in its block."""
        if isinstance(statement, ast.Return):
            return self.returns
        if isinstance(statement, (ast.Break, ast.Continue)):
            return True
        if isinstance(statement, OWN_SCOPE):
            return False
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            inside = self.returns and contains([statement], (ast.Return,))
            return inside or any(map(self.passes_over, statement.orelse))
        return any(self.passes_over(x) for block in _blocks(statement) for x in block)

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Return(value=value) if self.returns:
                for loop in self.loops:
                    loop.breaks = True
                flags = [DONE, *(name for loop in self.loops for name in (loop.broken, loop.passed))]
                given = value or ast.copy_location(ast.Constant(None), node)
                return [*statements(f"{VALUE} = GIVEN", node, GIVEN=given),
                        *statements(f"{' = '.join(flags)} = True", node)]
            case ast.Break():
                self.loops[-1].breaks = True
                return statements(f"{self.loops[-1].broken} = {self.loops[-1].passed} = True", node)
            case ast.Continue():
                return statements(f"{self.loops[-1].passed} = True", node)
            case ast.While() | ast.For():
                return self.loop(node)
            case ast.Try() if any(map(self.passes_over, node.body)) and node.orelse:
                node.body, otherwise = self.block(node.body), self.block(node.orelse)
                node.orelse = self.guard(otherwise)
                self.each_block(node, ("handlers", "finalbody"))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                self.each_block(node, node._fields)
        return [node]

    def each_block(self, node: Any, fields: tuple[str, ...]) -> None:
        """Lower the blocks of a compound statement, also those of its handlers and cases."""
        for name in fields:
            value = getattr(node, name, None)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value, list):
                for part in value:
                    if isinstance(part, (ast.ExceptHandler, ast.match_case)):
                        part.body = self.block(part.body)

    def loop(self, node: Any) -> list[ast.stmt]:
        self.count += 1
        loop = _Loop(f"{HELPER}_broken_{self.count}", f"{HELPER}_passed_{self.count}")
        guards, self.guards = self.guards, max(0, self.guards - 2)
        self.loops.append(loop)
        passes = any(map(self.passes_over, node.body))
        node.body = self.block(node.body)
        self.loops.pop()
        self.guards = guards
        node.broken = loop.broken if loop.breaks else None
        if passes:
            node.body = statements(f"{loop.passed} = False", node.body[0]) + node.body
        otherwise, node.orelse = self.block(node.orelse), []
        after = statements(f"if not {loop.broken}:\n    BODY", otherwise[0], BODY=otherwise) \
            if otherwise and loop.breaks else otherwise
        return [*(statements(f"{loop.broken} = False", node) if loop.breaks else []), node, *after]


def _blocks(statement: ast.AST) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    found = []
    for name in ("body", "orelse", "finalbody"):
        found += [getattr(statement, name)] if isinstance(getattr(statement, name, None), list) else []
    for part in [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]:
        found.append(part.body)
    return found
