"""Loops whose conditions have one answer in all iterations but the first and last -> those iterations; a loop that
never asks.

    for i in range(29): for k in range(3): r[i] = max(r[i], x[2*i + k - 1] if 0 <= 2*i + k - 1 < 57 else -inf)
    ->  the same for i in (0, 28);  for i in range(27): for k in range(3): r[i + 1] = max(r[i + 1], x[2*i + k + 1])

So windows that reach over the ends of a row leave whole vectors to the others; the two ends are one piece of code, and
rows that windows reach over are asked about once (`unswitch_masks`).  A position that is divided by a few is that many
loops' (i // 2 and i % 2), and a few iterations that store, and have answers of their own, are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeGuard

from tenon.loops.affine import Affine, affine, affine_bounds
from tenon.loops.binders import fresh, loops_are_distinct, names_inside
from tenon.loops.expressions import Binary, CheckedIndex, Const, Expr, Index, Load, size
from tenon.loops.loop_ir import (
    Accumulator,
    Block,
    Kernel,
    Let,
    Loop,
    Nest,
    Stmt,
    Store,
    Update,
    expressions_in,
    statements,
)
from tenon.loops.simplify_expressions import Substitution, simplify, substitute
from tenon.loops.traversal import replace as replaced
from tenon.loops.traversal import walk
from tenon.loops.unswitch_masks import read_elsewhere
from tenon.records import replace
from tenon.types import int64

MIN_PEELED_WORK = 1 << 16  # iterations of what is innermost that are worth the time that copies take to compile
COMPARISONS = "<", "<=", ">", ">="
MIN_PEELED_ITERATIONS = 9   # fewer are written out by LLVM, each with its answers
EDGE_DIVISOR = 4        # the loop is so many times as long as what is cut off
MAX_ITERATIONS = 4       # of a loop that is written out
MAX_STATEMENTS = 24     # which are copied


def peeled(kernel: Kernel) -> Kernel:
    """The kernel, with the ends of loops cut off where that answers conditions, and there is much to be gained."""
    return replace(kernel, nests=tuple(map(_peeled, kernel.nests)))


def _peeled(nest: Nest) -> Nest:
    inside = statements(nest.body)
    if not any(_takes_many_iterations(x) for x in nest.body) or not any(map(_asks, expressions_in(inside))):
        return nest
    body = _all(nest.body)
    assert loops_are_distinct(body), "a loop has the index of one around it"
    return replace(nest, body=body)


def _takes_many_iterations(statement: Stmt, around: int = 1) -> bool:
    """Whether what is innermost is done often; a size that a call decides is large."""
    if not isinstance(statement, Loop):
        return around >= MIN_PEELED_WORK
    return any(_takes_many_iterations(x, around * (_iterations(statement) or MIN_PEELED_WORK)) for x in statement.body)


def _asks(x: Expr) -> bool:
    """Whether an answer may depend on a loop's iteration."""
    return isinstance(x, Binary) and x.left.dtype is int64 and x.op in (*COMPARISONS, "//", "%")


def _all(body: Block) -> Block:
    return tuple(part for statement in body for part in _parts(statement))


def _parts(statement: Stmt) -> Block:
    """What stands in the place of a statement."""
    if not isinstance(statement, Loop):
        return (statement,)
    inside, lines = _conditions(statement), [x.index for x in statements(statement.body) if _is_line(x)]
    if _iterations(statement) <= MAX_ITERATIONS and any(
            x.op in COMPARISONS and not x.free.isdisjoint(lines) for x in inside):      # each cuts the line elsewhere
        return tuple(part for k in range(_iterations(statement)) for part in _all(_at(statement, size(k))))
    if lines:
        return (replace(statement, body=_all(statement.body)),)
    n = _divisor(statement, inside)
    start, stop = _middle(statement, inside, n)
    middle = _tiled(statement, n, start, stop) if n > 1 else _iterations_of(statement, start, stop)
    middle = read_elsewhere(replace(middle, body=_written_out(middle.body)))
    return (*_ends(statement, start, stop), middle)


def _is_line(x: Stmt) -> TypeGuard[Loop]:
    """Whether it is a long loop that stores."""
    return isinstance(x, Loop) and (_iterations(x) or MIN_PEELED_ITERATIONS) >= MIN_PEELED_ITERATIONS \
        and any(isinstance(s, Store) for s in statements(x.body))


def _tiled(loop: Loop, n: int, start: int, stop: int) -> Loop:
    """Some iterations of a loop as two loops, over the index divided by n and over what is left."""
    inner = fresh(loop.index.name + "_in", n, names_inside(loop.body))
    outer = Index(loop.index.name, (stop - start) // n)
    tile = replace(loop, index=inner, extent=size(n), body=_at(loop, outer * size(n) + inner + size(start)))
    return replace(loop, index=outer, extent=size(outer.extent), body=(tile,))


def _iterations_of(loop: Loop, start: int, stop: int) -> Loop:
    """Some iterations of a loop."""
    if stop - start == _iterations(loop):
        return loop
    index = Index(loop.index.name, stop - start)
    return replace(loop, index=index, extent=size(stop - start), body=_at(loop, index + size(start)))


def _ends(loop: Loop, start: int, stop: int) -> Block:
    """The iterations before one, and from another one on, in one loop."""
    first, last = start, _iterations(loop) - stop
    if not first and not last:
        return ()
    index = fresh(loop.index.name + "_end", first + last, names_inside(loop.body))
    beyond = (index + size(max(last - first, 0))) // size(max(first, last))
    position = simplify(index + beyond * size(stop - start)) if first else index + size(stop)
    if first + last == 1:
        return _at(loop, substitute(position, {index: size(0)}))
    return (replace(loop, index=index, extent=size(first + last), body=_at(loop, position)),)


def _written_out(body: Block) -> Block:
    """The iterations of short loops that have answers of their own, one by one."""
    found: list[Stmt] = []
    for x in body:
        if isinstance(x, Loop) and _is_written_out(x, _conditions(x)):
            found += [part for k in range(_iterations(x)) for part in _written_out(_at(x, size(k)))]
        else:
            found.append(replace(x, body=_written_out(x.body)) if isinstance(x, Loop) else x)
    return tuple(found)


def _at(loop: Loop, position: Expr) -> Block:
    """The body of a loop in another iteration."""
    return _moved(loop.body, Substitution({loop.index: position}), {})


def _moved(body: Block, moved: Substitution, known: dict[Expr, Expr]) -> Block:
    """The statements for other iterations; `known` are the scalars that are constants there."""
    def new(x: Expr) -> Expr:
        return simplify(replaced(moved(x), known))
    found: list[Stmt] = []
    for x in body:
        match x:
            case Let(local=local, value=value):
                answer = new(value)
                if isinstance(answer, Const):
                    known[local] = answer
                else:
                    found.append(Let(local, answer))
            case Store(buffer=buffer, offset=offset, value=value):
                found.append(Store(buffer, new(offset), new(value)))
            case Update(local=local, kind=kind, value=value):
                found.append(Update(local, kind, new(value)))
            case Loop(body=inner):
                found.append(replace(x, body=_moved(inner, moved, known)))
            case _:
                found.append(x)
    return tuple(found)


# ---------------------------------------------------------------- where to cut

def _conditions(loop: Loop) -> list[Binary]:
    """The comparisons and divisions of positions inside of a loop, if it may be copied, its iterations in any order."""
    inside = statements(loop.body)
    if loop.kind == "parallel" or not _iterations(loop) or len(inside) > MAX_STATEMENTS \
            or not all(map(_is_plain, inside)) or _hands_on(loop, inside):
        return []
    parts = expressions_in(inside)
    if any(isinstance(x, CheckedIndex) for x in parts):
        return []
    return [x for x in parts if isinstance(x, Binary) and _asks(x) and loop.index in x.free]


def _hands_on(loop: Loop, inside: Sequence[Stmt]) -> bool:
    """Whether an iteration may read what another one leaves, as running totals do, or write over it."""
    own = {x.local for x in inside if isinstance(x, Accumulator)}
    if any(isinstance(x, Update) and x.local not in own for x in inside):
        return True
    stored = {(x.buffer, x.offset) for x in inside if isinstance(x, Store)}
    read = {(x.buffer, x.offset) for x in expressions_in(inside) if isinstance(x, Load)}
    return any(loop.index not in affine(offset).terms or any(isinstance(x, Load) for x in walk(offset))
               or any(place is not offset for other, place in read if other is buffer) for buffer, offset in stored)


def _iterations(loop: Loop) -> int:
    """How many there are; 0 if that is not known."""
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 0


def _divisor(loop: Loop, inside: Sequence[Binary]) -> int:
    """By what the position is divided in a long loop that stores, or 1."""
    found = [int(x.right.value) for x in inside if x.op in ("//", "%") and isinstance(x.right, Const)
             and affine(x.left).terms.get(loop.index) == 1]
    n = max(found, default=1)
    adds = any(isinstance(x, Update) for x in loop.body)
    return n if 1 < n <= MAX_ITERATIONS and _iterations(loop) >= MIN_PEELED_ITERATIONS and not adds else 1


def _is_written_out(loop: Loop, inside: Sequence[Binary]) -> bool:
    """Whether a few iterations, which store, have answers of their own."""
    return _iterations(loop) <= MAX_ITERATIONS and any(isinstance(x, Store) for x in loop.body) \
        and any(x.op in COMPARISONS for x in inside)


def _middle(loop: Loop, inside: Sequence[Binary], n: int) -> tuple[int, int]:
    """The iterations, a multiple of n, between which answers do not change; all of them where that leaves out too
    many."""
    iterations = _iterations(loop)
    whole = 0, iterations - iterations % n
    if iterations < MIN_PEELED_ITERATIONS or loop.kind == "vector":
        return whole
    changes = {end for x in inside for end in _changes(x, loop.index, iterations)}
    start, stop = max(pairwise(sorted({0, iterations, *changes})), key=lambda ends: ends[1] - ends[0])
    stop -= (stop - start) % n
    return (start, stop) if (iterations - (stop - start)) * EDGE_DIVISOR <= iterations else whole


def _is_plain(x: Stmt) -> bool:
    return isinstance(x, (Let, Store, Update, Accumulator)) or (isinstance(x, Loop) and isinstance(x.extent, Const))


def _changes(x: Expr, index: Index, extent: int) -> Iterator[int]:
    """Within which iterations the answer of a comparison becomes known, or other, whatever the other loops'
    iterations."""
    match x:
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=left, right=right):
            sign = 1 if op in (">", ">=") else -1
            form = (affine(left) + affine(right).scaled(-1)).scaled(sign)       # is at least 0, or 1
            atom, n, shift = _quotient(form, index)
            by = form.terms.get(atom)
            low, high = affine_bounds(Affine({k: c for k, c in form.terms.items() if k is not atom}, form.constant))
            if not (isinstance(by, int) and isinstance(low, int) and isinstance(high, int)):
                return
            strict = op in ("<", ">")
            ends = sorted(-((least - strict) // by) if by > 0 else (least - strict) // -by + 1 for least in (low, high))
            ends = [end * n - shift for end in ends]
            if (ends[1] - ends[0]) * EDGE_DIVISOR <= extent:
                yield from (end for end in ends if 0 < end < extent)


def _quotient(form: Affine, index: Index) -> tuple[Expr, int, int]:
    """(q, n, c) where q, a part of a sum, is the index or (index + c) // n."""
    for atom in form.terms:
        match atom:
            case Binary(op="//", left=left, right=Const(value=n)) if affine(left).terms == {index: 1}:
                shift = affine(left).constant
                if isinstance(shift, int):
                    return atom, int(n), shift
    return index, 1, 0
