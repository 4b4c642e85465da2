"""Loops -> an error where they are no loops: a name that nobody made, memory that is nobody's, a type that is another.

Elements, nests and kernels are verified after every pass in tests; what they store is compared elsewhere
(`validate_loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenon.errors import CompilerDefect
from tenon.loops.binders import loops_are_distinct
from tenon.loops.expressions import Buffer, Expr, Index, Load, Local, Reduce
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_ir import (
    Accumulator,
    Block,
    BlockedAttention,
    Contraction,
    Kernel,
    Let,
    Loop,
    Nest,
    Prefetch,
    Store,
    TransposeTile,
    Update,
    roots,
)
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts, walk
from tenon.types import int64

Names = frozenset[Expr]


def verify_loops(loops: Any, context: LoopContext, seen: dict[int, Any] | None = None) -> None:
    """Raise CompilerDefect where elements, groups of them and nests, or a kernel are not well formed.

    `seen` holds, by their identity, those that were verified before: most passes leave most of them as they are.
    """
    whole = isinstance(loops, Kernel)
    listed: Sequence[Any] = loops.nests if whole else loops
    flat = [y for x in listed for y in (x if isinstance(x, (list, tuple)) else (x,))]
    for x in flat:
        if seen is not None and not whole:
            if id(x) in seen:
                continue
            seen[id(x)] = x
        if isinstance(x, StoreTarget):
            _element(x)
        else:
            _nest(x, {*context.inputs, *context.outputs, *context.added} if whole else None)


def _element(x: StoreTarget) -> None:
    indices: Names = frozenset(x.indices)
    around: Names = indices | ({x.chunk.number, x.chunk.first} if x.chunk else set())
    _check(x.offset.dtype is int64, lambda: f"{x.offset}, a place in {x.buffer.name}, is {x.offset.dtype}")
    _check(len(x.iterations()) == len(x.indices), lambda: f"{len(x.iterations())} loops are {len(x.indices)} indices")
    for value in (x.offset, x.value, *x.iterations()):
        _expression(value, around, None)


def _nest(nest: Nest, known: set[Buffer] | None) -> None:
    _check(loops_are_distinct(nest.body), lambda: "a loop has the index of one around it")
    _rows(nest.body, set())
    _block(nest.body, frozenset(), None if known is None else known.union(nest.locals), set())


def _rows(body: Block, filled: set[Buffer]) -> None:
    """What is kept in local memory is read behind a statement that stores it."""
    for x in body:
        read = {part.buffer for part in walk(*roots(x)) if isinstance(part, Load) and part.buffer.role == "local"}
        if early := read - filled:
            raise _wrong(f"{', '.join(b.name for b in early)}: read before anything is stored there")
        match x:
            case Loop(body=inner) | Contraction(epilogue=inner) | BlockedAttention(stores=inner):
                _rows(inner, filled)
            case Store(buffer=buffer) | TransposeTile(buffer=buffer):
                filled.add(buffer)


def _block(body: Block, names: Names, known: set[Buffer] | None, adding: set[Local]) -> None:
    """Statements, whose names are known to those after them; `adding` are the accumulators that are open."""
    for x in body:
        if isinstance(x, (Loop, Let, Store, Update, Prefetch)):
            for root in roots(x):
                _expression(root, names, known)
        match x:
            case Loop(index=index, body=inner):
                _block(inner, names | {index}, known, adding)
            case Let(local=local):
                names |= {local}
            case Accumulator(local=local):
                names |= {local}
                adding = adding | {local}
            case Update(local=local):
                _check(local in adding, lambda: f"{local} is no accumulator")
            case Store(buffer=buffer, offset=offset):
                _buffer(buffer, known)
                _check(buffer.role != "input", lambda: f"{buffer.name}, an input, is written")
                _check(offset.dtype is int64, lambda: f"{offset}, a place in {buffer.name}, is {offset.dtype}")
            case TransposeTile(buffer=buffer) | Prefetch(buffer=buffer):
                _buffer(buffer, known)
            case Contraction():
                _contraction(x, names, known, adding)
            case BlockedAttention(batch=batch, row=row, column=column, depth=depth, width=width):
                around = names | {*batch, row, column, depth, width}
                for root in roots(x):
                    _expression(root, around, known)
                _block(x.stores, around | set(x.results), known, adding)


def _contraction(x: Contraction, names: Names, known: set[Buffer] | None, adding: set[Local]) -> None:
    around = names | {*x.batch, *x.rows, *x.columns}
    for root in roots(x):
        _expression(root, around | set(x.depth), known)
    chunk: Iterable[Expr] = () if x.chunk is None else (x.chunk.number, x.chunk.first)
    _block(x.epilogue, around | {x.sum, *chunk}, known, adding)


def _expression(x: Expr, names: Names, known: set[Buffer] | None) -> None:
    """All indices and locals of an expression are made around it, and what it loads is there."""
    _check(x.free <= names, lambda: f"{x} reads {', '.join(map(str, x.free - names))}, which no loop around it has")
    bound = {k for y in parts(x, Reduce) for k in y.indices}
    for part in walk(x):
        if isinstance(part, Local) and part not in names:
            raise _wrong(f"{part} is read before it is made")
        if isinstance(part, Index) and part not in names and part not in bound:
            raise _wrong(f"{part} is of no loop around {x}")
        if isinstance(part, Load):
            _buffer(part.buffer, known)
            if part.offset.dtype is not int64:
                raise _wrong(f"{part.offset}, a place in {part.buffer.name}, is {part.offset.dtype}")


def _buffer(buffer: Buffer, known: set[Buffer] | None) -> None:
    _check(known is None or buffer in known, lambda: f"{buffer.name} is no memory of the kernel")


def _check(holds: bool, said: Callable[[], str]) -> None:
    if not holds:
        raise _wrong(said())


def _wrong(said: str) -> CompilerDefect:
    return CompilerDefect(f"loops are not well formed: {said}")
