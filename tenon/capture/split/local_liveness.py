"""Statements -> the local variables that are read after each of them, and those that are bound before it.

`live_before` goes backwards: a variable is live where its value may be read on some way.  `bound_after` goes forwards:
a variable is bound for certain where every way there binds it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tenon.capture.convert.scope import bound_by, nodes_of, reads
from tenon.records import dataclass, replace

Names = frozenset[str]
NOTHING: Names = frozenset()
JUMPS = (ast.Return, ast.Break, ast.Continue)


@dataclass(frozen=True)
class ExitLiveness:
    """What is live where statements are left otherwise than at their end."""

    broken: Names = NOTHING
    continued: Names = NOTHING
    handled: Names = NOTHING        # where an exception may be caught, or passes a `finally`
    in_loop: bool = False           # whether the statements may run again

    def everywhere(self, names: Names) -> ExitLiveness:
        """The same, where every way leads through code in which these are live."""
        return replace(self, broken=self.broken | names, continued=self.continued | names, handled=self.handled | names)


@dataclass(frozen=True)
class StatementBlock:
    """The statements inside of another, what is live behind them, and what is bound when they begin."""

    field: str                      # of the node that has them
    owner: ast.AST
    statements: list[ast.stmt]
    after: Names
    ways: ExitLiveness
    bound: Names


def blocks_of(statement: ast.stmt, after: Names, ways: ExitLiveness, bound: Names) -> list[StatementBlock]:
    """The blocks of a compound statement that can be gone into; none for any other statement."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            return [StatementBlock("body", statement, body, after, ways, bound),
                    StatementBlock("orelse", statement, orelse, after, ways, bound)]
        case ast.While(body=body, orelse=orelse) | ast.For(body=body, orelse=orelse):
            head = _live_at_head(statement, after, ways)
            inside = replace(ways, broken=after, continued=head, in_loop=True)
            started = bound - _deleted(body) | _targets(statement)
            return [StatementBlock("body", statement, body, head, inside, started),
                    StatementBlock("orelse", statement, orelse, after, ways, bound)]
        case ast.With(body=body):
            inside = replace(ways, handled=ways.handled | after)        # it may keep an exception to itself
            return [StatementBlock("body", statement, body, after, inside, bound | _targets(statement))]
        case ast.Try():
            return list(_blocks_of_try(statement, after, ways, bound))
    return []


def _blocks_of_try(statement: ast.Try, after: Names, ways: ExitLiveness, bound: Names) -> Iterator[StatementBlock]:
    last, bound = after, bound - _deleted([statement])
    if statement.finalbody:
        all_ways = after | ways.broken | ways.continued | ways.handled
        last = live_through(statement.finalbody, all_ways, ways)
        yield StatementBlock("finalbody", statement, statement.finalbody, all_ways, ways, bound)
        ways = ways.everywhere(last)
    caught = ways.handled
    for handler in statement.handlers:
        yield StatementBlock("body", handler, handler.body, last, ways, bound | named_by(handler))
        caught |= live_through(handler.body, last, ways) - named_by(handler) | \
            _reads([handler.type] if handler.type else [])
    yield StatementBlock("orelse", statement, statement.orelse, last, ways, bound)
    inside = replace(ways, handled=caught)
    yield StatementBlock("body", statement, statement.body, live_through(statement.orelse, last, ways), inside, bound)


def named_by(owner: ast.AST) -> Names:
    """The variable of a handler that holds the exception."""
    return frozenset({owner.name} if isinstance(owner, ast.ExceptHandler) and owner.name else ())


def header_of(statement: ast.stmt) -> list[ast.AST]:
    """What a compound statement evaluates itself; of any other one, all of it."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return [test]
        case ast.For(target=target, iter=iterable):
            return [target, iterable]
        case ast.With(items=items):
            return list(items)
        case ast.Try(handlers=handlers):
            return [handler.type for handler in handlers if handler.type]
    return [statement]


def live_through(statements: Sequence[ast.stmt], after: Names, ways: ExitLiveness) -> Names:
    """What is live before the first of these statements."""
    for statement in reversed(statements):
        after = live_before(statement, after, ways)
    return after


def live_before(statement: ast.stmt, after: Names, ways: ExitLiveness) -> Names:
    """What is live before a statement, given what is behind it."""
    match statement:
        case ast.Return() | ast.Raise():
            return _reads([statement]) | ways.handled
        case ast.Break():
            return ways.broken
        case ast.Continue():
            return ways.continued
        case ast.While() | ast.For():
            return _live_at_head(statement, after, ways) | _reads([statement.iter] if isinstance(statement, ast.For)
                                                                  else [])
        case ast.If() | ast.With() | ast.Try():
            inside = [live_through(b.statements, b.after, b.ways) - named_by(b.owner)
                      for b in blocks_of(statement, after, ways, NOTHING)]
            return frozenset().union(*inside) - _targets(statement) | _reads(header_of(statement)) | ways.handled
        case ast.Match():
            return _reads([statement]) | after | ways.broken | ways.continued | ways.handled
    return after - binds(statement) | _reads([statement]) | ways.handled


def _live_at_head(statement: ast.While | ast.For, after: Names, ways: ExitLiveness) -> Names:
    """What is live where a loop asks whether it goes on."""
    asked = _reads([statement.test]) if isinstance(statement, ast.While) else NOTHING
    ended = live_through(statement.orelse, after, ways) | asked | ways.handled
    head = ended
    while True:
        inside = replace(ways, broken=after, continued=head, in_loop=True)
        found = ended | (live_through(statement.body, head, inside) - _targets(statement))
        if found <= head:
            return head
        head |= found


def bound_after(statement: ast.stmt, bound: Names) -> Names | None:
    """What is bound for certain behind a statement; None where nothing runs there."""
    match statement:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return None
        case ast.If(body=body, orelse=orelse):
            ends = [end for end in (bound_through(body, bound), bound_through(orelse, bound)) if end is not None]
            return frozenset.intersection(*ends) if ends else None
        case ast.With(body=body):
            return bound - _deleted(body) | _targets(statement)
        case ast.Try(finalbody=final):
            kept = bound - _deleted([statement])
            return kept | (bound_through(final, kept) or NOTHING)
        case ast.While() | ast.For() | ast.Match():
            return bound - _deleted([statement])
    return bound - _deleted([statement]) | (binds(statement) - _deleted([statement]))


def bound_through(statements: Sequence[ast.stmt], bound: Names) -> Names | None:
    """What is bound for certain behind statements."""
    for statement in statements:
        found = bound_after(statement, bound)
        if found is None:
            return None
        bound = found
    return bound


def binds(statement: ast.stmt) -> Names:
    """The variables that a simple statement binds or deletes, whatever happens."""
    perhaps = {x.target.id for x in nodes_of([statement]) if isinstance(x, ast.NamedExpr)}
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and getattr(statement, "value", None) is None:
        return NOTHING      # a declaration
    return frozenset(bound_by([statement])) - perhaps


def _targets(statement: ast.stmt) -> Names:
    """The variables that the header of a compound statement binds before its block begins."""
    match statement:
        case ast.For(target=target):
            return frozenset(bound_by([target]))
        case ast.With(items=items):
            return frozenset(bound_by([x.optional_vars for x in items if x.optional_vars]))
    return NOTHING


def _deleted(statements: Sequence[ast.AST]) -> Names:
    """The variables that are deleted somewhere in statements."""
    return frozenset(x.id for x in nodes_of(statements) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Del)) | \
        frozenset(x.name for x in nodes_of(statements) if isinstance(x, ast.ExceptHandler) and x.name)


def _reads(nodes: Sequence[ast.AST]) -> Names:
    return frozenset(reads(nodes))
