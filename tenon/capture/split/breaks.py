"""A function that stops a capture -> the function split there: pieces that are compiled, and Python in between.

A capture that stops says where (`Stack`: the code that ran, and its lines).  The statement of the function that stands
there is left to Python, and what is before and behind it becomes pieces, functions of the live variables which are
captured like any other.  A piece that stops is split likewise; the next call of the function has all its pieces.
A reason without a line halves a piece, until the statement is found.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

from tenon.capture.argument_roots import reference
from tenon.capture.capture_cache import Reason
from tenon.capture.code_monitor import Stack
from tenon.capture.code_origin import STANDS_FOR, follows
from tenon.capture.convert.rewrite import as_function as without_decorators
from tenon.capture.convert.rewrite import check, name_super
from tenon.capture.convert.scope import bound_by, globals_of, nodes_of, reads
from tenon.capture.convert.source_definitions import Definition, Unconvertible, definition_of
from tenon.capture.guards import is_atom
from tenon.capture.pytree import Structure
from tenon.capture.split.array_uses import computes_with
from tenon.capture.split.closures import shared_by
from tenon.capture.split.driver import Cuts, drive
from tenon.capture.split.local_liveness import ExitLiveness, blocks_of, header_of
from tenon.capture.split.outline_statements import Body, as_function
from tenon.capture.split.piece_cost import pays
from tenon.errors import PACKAGE, Location
from tenon.graph.ir import Graph
from tenon.graph.op import at_once
from tenon.locks import Lock
from tenon.records import dataclass, field
from tenon.tensor import Tensor

Bind = Callable[[Callable[..., Any]], Callable[..., Any]]
MAX_STOPS = 64          # of one function, before what more there is runs with graph breaks
MAX_KEYS = 4            # captures of one piece, before what makes all of them different is left to Python
MAX_ALIKE = 4           # functions of one code that are compiled for one function's calls
BRANCHING = (ast.If, ast.IfExp, ast.While, ast.For, ast.Try, ast.Match, ast.BoolOp)
NO_RESULT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
YIELDS = (ast.Yield, ast.YieldFrom)


@dataclass(eq=False)
class FunctionPart:
    """All statements of a function, or a piece of it: what runs them, and with how many stops that was made."""

    split: Split
    body: Body
    function: Any                           # as it is
    whole: ast.FunctionDef | None = None    # where it is all of the function
    driver: Any = None
    cells: Mapping[Body, types.CellType] = field(default_factory=dict)
    made_at: int = -1
    with_arrays: dict[frozenset[str], bool] = field(default_factory=dict)   # whether it computes with these, if arrays
    keys: list[dict[str, Any]] = field(default_factory=list)    # of the arguments of captures, variable by variable

    @property
    def pieces(self) -> list[tuple[int, int, Any]]:
        """What is compiled, piece by piece: the first and last lines, and the jitted function."""
        self.driving()
        listed = sorted(self.cells, key=lambda body: body.statements[0].lineno)
        return [(body.statements[0].lineno, body.statements[-1].end_lineno or 0, self.split.compiled[body])
                for body in listed if body not in self.split.cuts.idle]

    @property
    def callees(self) -> list[Any]:
        """The jitted functions that Python's statements call."""
        return [x for listed in self.split.called.known.values() for x in listed if x is not None]

    def note(self, reason: Reason) -> bool:
        """Take note of a stop; whether there is now a statement less to compile."""
        with self.split.lock:
            return self.split.note(self.body, self.function, reason)

    def leave(self, names: Collection[str], reason: Reason) -> bool:
        """Leave to Python what uses these variables; whether there are such statements."""
        with self.split.lock:
            using = [x for x in nodes_of(self.body.statements) if isinstance(x, ast.stmt)
                     and not set(names).isdisjoint(reads(header_of(x)))]
            if using and len(self.split.reasons) < MAX_STOPS:
                self.split.stop(using, reason)
                self._call_instead(self.driving() or self.function)
            return bool(using)

    def captured(self, nodes: int, structure: Structure, leaves: Sequence[Any]) -> None:
        """Take note of a capture for such arguments: what is best left to Python after all."""
        if self.whole is not None:
            return
        with self.split.lock:
            if nodes == 0 and not any(isinstance(x, BRANCHING) for x in nodes_of(self.body.statements)):
                self._stay_python()
            self.keys.append(dict(zip(self.body.takes, leaves_by_argument(structure, leaves), strict=False)))
            if len(self.keys) == MAX_KEYS:
                self._leave_new_values()

    def weigh(self, graph: Graph, recorded: bool) -> None:
        """Leave a piece to Python that is called by the slow path, or on the tape, and computes too little for that."""
        if self.whole is None and not pays(graph, recorded):
            with self.split.lock:
                self._stay_python()

    def _stay_python(self) -> None:
        """What computes nothing with tensors, and has no branch that might, is called as it is."""
        self.split.cuts.idle.add(self.body)
        self.split.version += 1
        self._call_instead(self.function)

    def _call_instead(self, function: Any) -> None:
        """Let drivers that run call something else for this piece from now on."""
        for part in self.split.parts.values():
            if self.body in part.cells:
                part.cells[self.body].cell_contents = function

    def _leave_new_values(self) -> None:
        """Leave to Python what reads a variable that is another object at each capture, such as a date."""
        new = {name for name in self.body.takes if is_new([leaves.get(name, []) for leaves in self.keys])}
        readers = [x for x in nodes_of(self.body.statements) if isinstance(x, ast.stmt)
                   and not new.isdisjoint(reads(header_of(x)))]
        if readers:
            self.split.stop(readers, Reason(f"{', '.join(sorted(new))} is another object in every call",
                                            Location(self.function.__code__.co_filename, readers[0].lineno)))
            self._call_instead(self.driving() or self.function)
        self.keys.clear()

    def leave_arrays(self, names: frozenset[str]) -> bool:
        """Leave to Python what computes with variables that hold arrays of NumPy; whether there is any such."""
        if names not in self.with_arrays:
            with self.split.lock:
                found = [x for x in nodes_of(self.body.statements) if isinstance(x, ast.stmt)
                         and computes_with(header_of(x), names)]
                if new := [x for x in found if x not in self.split.cuts.stops]:
                    what = f"{', '.join(sorted(names))} is an array of NumPy, which computes with it"
                    self.split.stop(new, Reason(what, Location(self.function.__code__.co_filename, new[0].lineno)))
                    self._call_instead(self.driving() or self.function)
                self.with_arrays[names] = bool(found)
        return self.with_arrays[names]

    def driving(self) -> Any:
        """The function that runs it; None where there is nothing to compile."""
        if self.made_at != self.split.version:
            with self.split.lock:
                self._drive()
        return self.driver

    def _drive(self) -> None:
        if self.made_at == self.split.version:
            return
        try:
            found = drive(self.body, self.whole, self.split.cuts, self.split.piece, self.split.called, self._left,
                          self.split.shorten)
        except (SyntaxError, ValueError, RecursionError):       # such as more nested blocks than Python takes
            found = None
        self.driver, self.cells = found or (None, {})
        self.split.codes.setdefault(self.body, set()).update({self.driver.__code__} if self.driver else ())
        self.made_at = self.split.version
        if self.whole is not None:
            self.split.forget(self.cells)

    def _left(self, pieces: Sequence[Body]) -> Callable[[BaseException, int], Mapping[str, Any]]:
        """What reads the variables that a piece had when it raised an error."""
        listed = tuple(pieces)
        return lambda error, number: self.split.left_by(error, listed[number])


class Split:
    """One function: where it is split and why, and the parts that it has so far."""

    def __init__(self, function: types.FunctionType, compile: Callable[[types.FunctionType, FunctionPart | None], Any]):
        self.function, self.compile, self.lock = function, compile, Lock()
        definition = definition_of(function.__code__, function.__globals__)
        node = without_decorators(definition, function.__code__)
        check(node)
        if any(isinstance(x, YIELDS) for x in nodes_of(node.body)):
            raise Unconvertible("it is a generator")
        name_super(node)
        arguments = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
        lent = {name for x in nodes_of(node.body) if isinstance(x, ast.Nonlocal) for name in x.names}
        own = frozenset(arguments | set(bound_by(node.body)) - globals_of(node.body) - lent)
        self.cuts = Cuts(function, Definition(node, definition.owner), own, shared_by(node, own))
        self.reasons: list[Reason] = []         # why it is split, as that was found
        self.parts: dict[Body, FunctionPart] = {}
        self.compiled: dict[Body, Any] = {}
        self.codes: dict[Body, set[types.CodeType]] = {}
        self.called = CalledFunction(compile)
        self.version = 0
        body = Body(tuple(node.body), (), None)
        self.all = FunctionPart(self, body, function, node)
        self.parts[body] = self.all

    def piece(self, body: Body) -> Any:
        """What runs a piece."""
        if body not in self.parts:
            function = as_function(body, self.function, self.cuts.definition)
            self.parts[body] = part = FunctionPart(self, body, function)
            self.codes.setdefault(body, set()).add(function.__code__)
            self.compiled[body] = self.compile(function, part)
        return self.compiled[body]

    def forget(self, used: Collection[Body]) -> None:
        """Forget pieces of which others have taken the place."""
        for body in [body for body in self.compiled if body not in used]:
            del self.parts[body], self.compiled[body], self.codes[body]

    def note(self, body: Body, function: types.FunctionType, reason: Reason) -> bool:
        """Take note that a capture of this body stopped; whether that leaves a statement less to compile."""
        if len(self.reasons) >= MAX_STOPS:
            return False
        stack: Stack = reason.stack or ()
        places = [k for k, (code, *_) in enumerate(stack)
                  if code is function.__code__ or function.__code__ in STANDS_FOR.get(code, ())]
        statement = statement_at(body.statements, *stack[places[-1]][1:]) if places else only(body.statements)
        if places and not all(is_inside(code, function.__code__) for code, *_ in stack[:places[-1]]):
            self.cuts.calls = True
        if statement is not None and statement not in self.cuts.stops:
            self.stop([statement], reason)
        elif not places and len(body.statements) > 1 and self.begin_of_half(body) not in self.cuts.begins:
            self.cuts.begins.add(self.begin_of_half(body))
            self.version += 1
        else:
            return False
        return True

    def stop(self, statements: Sequence[ast.stmt], reason: Reason) -> None:
        """Leave statements, or their headers, to Python."""
        self.cuts.stops.update(statements)
        self.reasons.append(reason)
        self.version += 1

    @staticmethod
    def begin_of_half(body: Body) -> ast.stmt:
        """The statement in the middle."""
        return body.statements[len(body.statements) // 2]

    def shorten(self, error: BaseException) -> None:
        """Take the calls of pieces out of an error's traceback: what raised is a line of the function."""
        pieces = {code for body, codes in self.codes.items() for code in codes if body != self.all.body}
        trace = found = error.__traceback__
        while trace is not None and (trace is found or trace.tb_frame.f_code.co_filename.startswith(PACKAGE)
                                     or trace.tb_frame.f_code in pieces):
            found = trace if trace.tb_frame.f_code in pieces else found
            trace = trace.tb_next
        error.__traceback__ = found

    def left_by(self, error: BaseException, body: Body) -> Mapping[str, Any]:
        """The variables of a piece where it raised an error."""
        codes = self.codes.get(body, ())
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return trace.tb_frame.f_locals
            trace = trace.tb_next
        return {}


class CalledFunction:
    """What a statement of Python's calls: a user's function is compiled, other things stay as they are."""

    def __init__(self, compile: Callable[[types.FunctionType, FunctionPart | None], Any]):
        self.compile = compile
        self.known: WeakKeyDictionary[types.CodeType, list[Any]] = WeakKeyDictionary()

    def __call__(self, function: Any) -> Any:
        kind = type(function)
        if kind is types.FunctionType:
            return self.of_function(function)
        if kind is types.MethodType:
            inner = self(function.__func__)
            return function if inner is function.__func__ else types.MethodType(inner, function.__self__)
        if kind is types.BuiltinFunctionType or kind is type:
            return function
        inner = getattr(kind, "__call__", None)     # noqa: B004
        if type(inner) is types.FunctionType and (own := self.of_function(inner)) is not inner:
            return types.MethodType(own, function)
        return function

    def of_function(self, function: types.FunctionType) -> Any:
        """The compiled function, for the first few of one code."""
        listed = self.known.get(function.__code__)
        if listed is None:
            listed = self.known[function.__code__] = [] if is_compiled(function.__code__) else [None]
        for jitted in listed:
            if jitted is None:
                return function
            if jitted.function is function:
                return jitted if at_once() else function
        if not at_once():
            return function
        if len(listed) >= MAX_ALIKE:       # new ones in every call
            listed[:] = [None]
            return function
        listed.append(self.compile(function, None))
        return listed[-1]


def is_compiled(code: types.CodeType) -> bool:
    """Whether functions of this code can be graphs."""
    return follows(code) and not code.co_flags & NO_RESULT


def leaves_by_argument(structure: Structure, leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """The leaves of each positional argument, as what keeps none of them alive."""
    start = 0
    for child in structure.children[0].children:
        kind = [ref(child.kind)] if isinstance(child.kind, type) else []
        yield kind + [x if is_atom(x) else None if isinstance(x, Tensor) else reference(x) or GONE
                      for x in leaves[start:start + child.leaves]]
        start += child.leaves


def GONE() -> None:
    """A reference to something that cannot be referred to weakly."""


def is_new(before: Sequence[list[Any]]) -> bool:
    """Whether an argument is another one each time: its text or class differs, or the objects that there were are gone.
    """
    for leaves in zip(*before, strict=False):
        now = [x() if callable(x) else x for x in leaves]
        if all(isinstance(x, (str, type)) for x in now) and len(set(now)) == len(now):
            return True
        if all(callable(x) and y is None for x, y in zip(leaves[:-1], now, strict=False)):
            return True
    return False


def is_inside(code: types.CodeType, function: types.CodeType) -> bool:
    """Whether this is the code of a lambda or comprehension in a function."""
    return code.co_filename == function.co_filename and (code.co_name.startswith("<") or code in STANDS_FOR)


def statement_at(statements: Sequence[ast.stmt], line: int, column: int | None) -> ast.stmt | None:
    """The innermost statement at a place, or the one whose header has it."""
    for statement in statements:
        if not is_within(statement, line, column):
            continue
        empty: frozenset[str] = frozenset()
        if any(is_within(x, line, column) for x in header_of(statement) if hasattr(x, "lineno")):
            return statement
        for block in blocks_of(statement, empty, ExitLiveness(), empty):
            if (found := statement_at(block.statements, line, column)) is not None:
                return found
        return statement
    return None


def only(statements: Sequence[ast.stmt]) -> ast.stmt | None:
    """The statement, where there is one."""
    return statements[0] if len(statements) == 1 else None


def is_within(node: Any, line: int, column: int | None) -> bool:
    """Whether a place is within a node of the syntax."""
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    for decorator in getattr(node, "decorator_list", ()):
        first = min(first, (decorator.lineno, 0))
    if column is None:
        return bool(first[0] <= line <= last[0])
    return bool(first <= (line, column) < last)


def split_of(function: Any,
             compile: Callable[[types.FunctionType, FunctionPart | None], Any]) -> tuple[FunctionPart, Bind] | None:
    """A function as a part that can be split, and what binds a driver of it likewise; None where it must be whole."""
    if isinstance(function, functools.partial):
        return _bound(split_of(function.func, compile),
                      lambda f: functools.partial(f, *function.args, **function.keywords))
    if isinstance(function, types.MethodType):
        return _bound(split_of(function.__func__, compile), lambda f: types.MethodType(f, function.__self__))
    if not isinstance(function, types.FunctionType):
        call = getattr(type(function), "__call__", None)  # noqa: B004
        return _bound(split_of(call, compile) if isinstance(call, types.FunctionType) else None,
                      lambda f: types.MethodType(f, function))
    if not follows(function.__code__):      # Tenon's own, such as `tn.vmap(f)`, which is called as it is
        return None
    try:
        return Split(function, compile).all, lambda f: f
    except Unconvertible:
        return None


def _bound(found: tuple[FunctionPart, Bind] | None, bind: Bind) -> tuple[FunctionPart, Bind] | None:
    return found and (found[0], lambda f: bind(found[1](f)))
