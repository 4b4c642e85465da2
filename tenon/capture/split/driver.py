"""A function and the statements at which it is split -> the same function, with calls of compiled pieces in between.

    def f(x):                                           def f(x):
        t = time.time()                                     t = time.time()
        for y in x:                                         for y in x:
            y = y * 2 + 1               ->                      z = piece_1(y)
            print(y, time.time())                               print(z, time.time())
        return x.sum(), t                                   return piece_2(x, t)

A statement that stays Python calls users' functions by `_tenon_call`, which has them compiled.  What is a loop, a
condition, a `with` or a `try` around such a statement is gone into; so is one that a `return` leaves.
"""

from __future__ import annotations

import ast
import builtins
import copy
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenon.capture.code_origin import follows
from tenon.capture.convert.ast_templates import expression, statements
from tenon.capture.convert.scope import OWN_SCOPE, bound_by, contains, mangled, nodes_of, reads
from tenon.capture.convert.source_definitions import Definition
from tenon.capture.split.closures import Shared
from tenon.capture.split.local_liveness import (
    JUMPS,
    NOTHING,
    ExitLiveness,
    Names,
    blocks_of,
    bound_after,
    bound_through,
    header_of,
    live_before,
    live_through,
)
from tenon.capture.split.outline_statements import NONE, UNBOUND, Body, made, or_unbound, parameters, when_unbound
from tenon.records import dataclass, field

CALL, LEFT, RAISED = "_tenon_call", "_tenon_left", "_tenon_raised"
COMPUTING = (ast.Call, ast.BinOp, ast.AugAssign, ast.UnaryOp)
# What is called to say something, to keep it, or to look at it: nothing that a piece is made for.
IDLE = frozenset({"print", "warn", "debug", "info", "warning", "error", "critical", "exception", "log", "append",
                  "item", "tolist", "float", "int", "bool", "str", "repr", "len", "round", "format", "isinstance",
                  "range"})

GUARDED = """
try:
    CALLED
except BaseException as _tenon_error:
    _tenon_found = _tenon_left(_tenon_error, NUMBER)
    RESTORE
    raise
"""


RESTORED = """
if {key!r} in _tenon_found:
    {name} = _tenon_found[{key!r}]
"""

OUTERMOST = """
try:
    BODY
except BaseException as _tenon_error:
    _tenon_raised(_tenon_error)
    raise
"""


@dataclass
class Cuts:
    """Where a function is split, and what is known of it."""

    function: Any
    definition: Definition
    own: Names                                      # its local variables
    shared: Shared
    stops: set[ast.stmt] = field(default_factory=set)        # statements that are Python's, or whose headers are
    begins: set[ast.stmt] = field(default_factory=set)       # statements with which another piece begins
    calls: bool = False             # whether one of them calls a user's function that stopped a capture
    idle: set[Body] = field(default_factory=set)            # which compute nothing with tensors

    @property
    def foreign(self) -> Names:
        """The variables that hold what statements made which stopped a capture, such as a progress bar."""
        return frozenset(name for x in self.stops if not isinstance(x, ast.For) for name in bound_by(
            [x] if not blocks_of(x, NOTHING, ExitLiveness(), NOTHING) else header_of(x)))

    def has_stop(self, statement: ast.stmt) -> bool:
        """Whether Python runs a statement, or the header of one, here or in a block of the statement."""
        return is_of_python(statement) or any(
            isinstance(x, ast.stmt) and (x in self.stops or self.shared.holds(header_of(x)))
            for x in nodes_of([statement]))


@dataclass
class SplitDriver:
    """What writes the function; `pieces` are those that it calls."""

    cuts: Cuts
    pieces: list[Body] = field(default_factory=list)

    def written(self, body: Body, node: ast.FunctionDef | None) -> list[ast.stmt]:
        """The statements of a body, split; `node` is the definition where it is all of the function."""
        bound = frozenset(x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)) if node else \
            frozenset(body.takes) - body.unsure_takes
        after = frozenset(body.gives or ())
        inside = self.block(body.statements, after, ExitLiveness(handled=body.handled), bound, body.gives is None)
        return [*body.begin(), *inside, *body.end()]

    def block(self, listed: Sequence[ast.stmt], after: Names, ways: ExitLiveness, bound: Names,
              last: bool) -> list[ast.stmt]:
        """The statements of a block; `last`: whether the function ends behind it."""
        lives = [after]
        for statement in reversed(listed):
            lives.append(live_before(statement, lives[-1], ways))
        lives.reverse()
        bounds: list[Names] = [bound]
        for statement in listed:
            bounds.append(found if (found := bound_after(statement, bounds[-1])) is not None else bounds[-1])
        returning = self.returning(listed, last, ways)
        out: list[ast.stmt] = []
        run = StatementRun(self, listed, lives, bounds, ways)
        start = 0
        for k, statement in enumerate(listed):
            if k >= returning:
                break
            if self.cuts.has_stop(statement) or leaves(statement):
                out += run.pieces(start, k)
                out += self.python(statement, lives[k + 1], ways, bounds[k])
                start = k + 1
        return out + (run.pieces(start, returning) + run.returned(max(start, returning), len(listed))
                      if returning < len(listed) else run.pieces(start, len(listed)))

    def returning(self, listed: Sequence[ast.stmt], last: bool, ways: ExitLiveness) -> int:
        """Where the statements begin that return as a whole, so that a piece may hold their `return`."""
        if not listed or not (last or isinstance(listed[-1], ast.Return)):
            return len(listed)
        start = len(listed)
        while start and not self.cuts.has_stop(listed[start - 1]) and not leaves(listed[start - 1], (ast.Return,)):
            start -= 1
        lost = not ways.handled.isdisjoint(bound_by(listed[start:]))       # which a `finally` may read
        return start if contains(listed[start:], (ast.Return,)) and not lost else len(listed)

    def python(self, statement: ast.stmt, after: Names, ways: ExitLiveness, bound: Names) -> list[ast.stmt]:
        """A statement that Python runs; blocks in it are split."""
        blocks = blocks_of(statement, after, ways, bound)
        if not blocks or isinstance(statement, OWN_SCOPE):
            return [self.with_calls(statement)]
        new = copy.copy(statement)
        if isinstance(new, ast.Try):
            new.handlers = [copy.copy(x) for x in new.handlers]
        for block in blocks:
            holder: Any = new if block.owner is statement else new.handlers[statement.handlers.index(block.owner)]  # type: ignore[attr-defined]
            setattr(holder, block.field, self.block(block.statements, block.after, block.ways, block.bound, False))
        for name in ("test", "iter", "items"):
            if hasattr(new, name):
                found = getattr(new, name)
                setattr(new, name, [self.with_calls(x) for x in found] if isinstance(found, list)
                        else self.with_calls(found))
        return [new]

    def with_calls(self, node: Any) -> Any:
        """A copy, whose calls of users' functions go through `_tenon_call`."""
        return CallRewriter(self.cuts).visit(copy.deepcopy(node))

    def call(self, body: Body) -> str:
        """The name of a piece."""
        if body not in self.pieces:
            self.pieces.append(body)
        return f"_tenon_piece_{self.pieces.index(body)}"


@dataclass(frozen=True)
class StatementRun:
    """A block, of which statements in a row become pieces."""

    driver: SplitDriver
    listed: Sequence[ast.stmt]
    lives: Sequence[Names]          # before each statement, and behind the last
    bounds: Sequence[Names]
    ways: ExitLiveness

    def pieces(self, start: int, end: int) -> list[ast.stmt]:
        """Statements from `start` up to `end`, in pieces that begin where they have to."""
        for k in range(start + 1, end):
            if self.listed[k] in self.driver.cuts.begins:
                return self.pieces(start, k) + self.pieces(k, end)
        while start < end and self.idle(start):
            return [self.listed[start], *self.pieces(start + 1, end)]
        if start < end and self.idle(end - 1):
            return [*self.pieces(start, end - 1), self.listed[end - 1]]
        if start == end:
            return []
        for k in range(start, end):
            if (name := function_name(self.listed[k])) is not None and name in self.lives[end]:
                return [*self.pieces(start, k), self.listed[k], *self.pieces(k + 1, end)]
        return self.piece(start, end)

    def idle(self, k: int) -> bool:
        """Whether a statement computes nothing, or calls a method of what a statement of Python's made."""
        match self.listed[k]:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                return name in self.driver.cuts.foreign or is_idle(self.listed[k])
        return is_idle(self.listed[k])

    def returned(self, start: int, end: int) -> list[ast.stmt]:
        """Statements that return from the function."""
        for k in range(start + 1, end):
            if self.listed[k] in self.driver.cuts.begins and not contains(self.listed[start:k], (ast.Return,)):
                return self.pieces(start, k) + self.returned(k, end)
        if start < end - 1 and self.idle(start):
            return [self.listed[start], *self.returned(start + 1, end)]
        if isinstance(self.listed[end - 1], ast.Return) and not contains(self.listed[start:end - 1], (ast.Return,)) \
                and self.idle(end - 1):
            return [*self.pieces(start, end - 1), self.listed[end - 1]]
        return self.called(self.body(start, end, None), "return ")

    def piece(self, start: int, end: int) -> list[ast.stmt]:
        """The call of a piece, which binds what it leaves."""
        gives = sorted(frozenset(bound_by(self.listed[start:end])) & self.lives[end] & self.driver.cuts.own)
        return self.called(self.body(start, end, tuple(gives)), f"{', '.join(gives)} = " if gives else "")

    def called(self, body: Body, target: str) -> list[ast.stmt]:
        """The call of a body; the statements themselves, where it computes nothing."""
        if body in self.driver.cuts.idle:
            return list(body.statements)
        at, owner = body.statements[0], self.driver.cuts.definition.owner
        before = [x for name in sorted(body.unsure_takes) for x in or_unbound(name, at)]
        called = statements(f"{target}{self.driver.call(body)}({', '.join(body.takes)})", at)
        called += [x for name in sorted(body.unsure_gives) for x in when_unbound(name, at)]
        if body.handled:
            restore = [x for name in sorted(body.handled) for x in statements(
                RESTORED.format(name=name, key=mangled(name, owner)), at)]
            number = ast.copy_location(ast.Constant(self.driver.pieces.index(body)), at)
            called = statements(GUARDED, at, CALLED=called, RESTORE=restore, NUMBER=number)
        return before + called

    def body(self, start: int, end: int, gives: tuple[str, ...] | None) -> Body:
        """These statements as a body."""
        listed, own = tuple(self.listed[start:end]), self.driver.cuts.own
        after = self.lives[end] if gives is None else frozenset(gives) | self.ways.handled
        touched = frozenset(reads(listed)) | frozenset(bound_by(listed))
        takes = live_through(listed, after, ExitLiveness(handled=self.ways.handled)) & touched & own
        takes -= self.never_bound(takes - self.bounds[start], listed)
        sure = bound_through(listed, self.bounds[start])
        unsure = frozenset(gives or ()) - (sure if sure is not None else frozenset(gives or ()))
        return Body(listed, tuple(sorted(takes)), gives, takes - self.bounds[start], unsure,
                    self.ways.handled & frozenset(bound_by(listed)) & own)

    def never_bound(self, names: Names, listed: Sequence[ast.stmt]) -> Names:
        """Variables that nothing but these statements binds, and they not before."""
        if not names or self.ways.in_loop:
            return frozenset()
        inside = set(map(id, nodes_of(listed)))
        others = [x for x in nodes_of(ast.iter_child_nodes(self.driver.cuts.definition.node)) if id(x) not in inside]
        return names - frozenset(bound_by_nodes(others))


def bound_by_nodes(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The variables that are bound by nodes themselves."""
    for x in nodes:
        if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load):
            yield x.id
        elif not isinstance(x, (ast.Module, ast.If, ast.For, ast.While, ast.With, ast.Try)):
            yield from bound_by([x]) if isinstance(x, (ast.stmt, ast.ExceptHandler, ast.pattern)) else ()


def leaves(statement: ast.stmt, kept: tuple[type, ...] = ()) -> bool:
    """Whether a jump in the statement may leave it; jumps of the kinds `kept` do not count."""
    def leaving(node: ast.AST, in_loop: bool) -> bool:
        if isinstance(node, OWN_SCOPE):
            return False
        if isinstance(node, JUMPS):
            return not isinstance(node, kept) and (isinstance(node, ast.Return) or not in_loop)
        if isinstance(node, (ast.For, ast.While)):
            return any(leaving(x, True) for x in node.body) or any(leaving(x, in_loop) for x in node.orelse)
        return any(leaving(x, in_loop) for x in ast.iter_child_nodes(node))
    return leaving(statement, False)


def is_of_python(statement: ast.stmt) -> bool:
    """Whether a statement is one about names, which a piece would have to hand on."""
    return isinstance(statement, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)) or (
        isinstance(statement, ast.Delete) and any(isinstance(x, ast.Name) for x in statement.targets))


def is_idle(statement: ast.stmt) -> bool:
    """Whether a statement computes nothing with a tensor, or only says or keeps something."""
    match statement:
        case ast.Expr(value=ast.Call(func=func)) if called_name(func) in IDLE:
            return True
        case ast.FunctionDef() | ast.ClassDef():
            return True
    return not any(isinstance(x, COMPUTING) and not (isinstance(x, ast.Call) and called_name(x.func) in IDLE)
                   for x in nodes_of([statement]))


def called_name(function: ast.expr) -> str | None:
    """The last name of what is called."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def function_name(statement: ast.stmt) -> str | None:
    """The variable to which a statement gives a new function or class."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
            return name
    return None


class CallRewriter(ast.NodeTransformer):
    """Calls of what may be a user's function -> calls by `_tenon_call`."""

    def __init__(self, cuts: Cuts):
        self.cuts = cuts

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, OWN_SCOPE):
            return node
        self.generic_visit(node)
        if isinstance(node, ast.Call) and self.is_open(node.func):
            node.func = expression(f"{CALL}(FUNCTION)", node.func, FUNCTION=node.func)
        return node

    def is_open(self, function: ast.expr) -> bool:
        """Whether nobody knows yet that a function is none of the user's."""
        cuts = self.cuts
        match function:
            case ast.Name(id=name) if name not in cuts.own:
                if name in cuts.function.__code__.co_freevars:
                    return name != "__class__"
                known = cuts.function.__globals__.get(name, vars(builtins).get(name))
                return known is not super and is_of_user(known)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name not in cuts.own:
                holder = cuts.function.__globals__.get(name)
                return not isinstance(holder, types.ModuleType) or is_of_user(vars(holder).get(attribute))
            case ast.Constant() | ast.JoinedStr() | ast.Attribute(value=ast.Constant() | ast.JoinedStr()):
                return False
        return True


def is_of_user(function: Any) -> bool:
    """Whether calling it may run code of the user's."""
    if isinstance(function, types.FunctionType):
        return follows(function.__code__)
    return not isinstance(function, (type, types.BuiltinFunctionType, types.BuiltinMethodType))


def drive(body: Body, node: ast.FunctionDef | None, cuts: Cuts, piece: Callable[[Body], Any], call: Any,
          left: Callable[[Sequence[Body]], Any], raised: Any) -> tuple[Any, Mapping[Body, types.CellType]] | None:
    """The function that runs a body in pieces, and the cells that hold them; None where there is nothing to compile."""
    driver = SplitDriver(cuts)
    listed = driver.written(body, node)
    if body in driver.pieces or not (driver.pieces or cuts.calls):
        return None
    named = {f"_tenon_piece_{k}": piece(x) for k, x in enumerate(driver.pieces)}
    more = {CALL: call, LEFT: left(driver.pieces), RAISED: raised, NONE: UNBOUND, **named}
    if node is not None:
        listed = statements(OUTERMOST, body.statements[0], BODY=listed)
    arguments = parameters(body.takes, body.statements[0]) if node is None else node.args
    new = made(listed, arguments, cuts.function, cuts.definition, more)
    if node is not None:
        new.__defaults__, new.__kwdefaults__ = cuts.function.__defaults__, cuts.function.__kwdefaults__
    free = dict(zip(new.__code__.co_freevars, new.__closure__ or (), strict=True))
    return new, {x: free[f"_tenon_piece_{k}"] for k, x in enumerate(driver.pieces)}
