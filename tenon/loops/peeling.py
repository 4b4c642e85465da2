"""Loops whose conditions have one answer in all turns but the first and last -> those turns; a loop that never asks.

    for i in range(29): for k in range(3): r[i] = max(r[i], x[2*i + k - 1] if 2*i + k - 1 >= 0 else -inf)
    ->  the same for i = 0;  for i in range(28): for k in range(3): r[i + 1] = max(r[i + 1], x[2*i + k + 1])

So windows that reach over the ends of a row leave whole vectors to the others.  A position that is divided by a few is
that many loops' (i // 2 and i % 2), and a few turns that have answers of their own are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tenon.dataclasses import replace
from tenon.loops.affine import Affine, affine, affine_bounds
from tenon.loops.expressions import Binary, CheckedIndex, Const, Expr, Index, size
from tenon.loops.ir import Accumulator, Block, Kernel, Let, Loop, Nest, Stmt, Store, Update, roots, statements
from tenon.loops.simplify import Substitution, simplify
from tenon.loops.traversal import replace as replaced
from tenon.loops.traversal import walk
from tenon.types import int64

MANY = 1 << 16      # turns of what is innermost that are worth the time that copies take to compile
COMPARISONS = "<", "<=", ">", ">="
FEWEST = 9          # turns: fewer are written out by LLVM, each with its answers
EDGE = 4            # the loop is so many times as long as what is cut off
MOST_TURNS = 4      # of a loop that is written out
MOST = 5            # pieces
MOST_STATEMENTS = 24    # which are copied


def peeled(kernel: Kernel) -> Kernel:
    """The kernel, with the ends of loops cut off where that answers conditions, and there is much to be gained."""
    return replace(kernel, nests=tuple(map(_peeled, kernel.nests)))


def _peeled(nest: Nest) -> Nest:
    inside = statements(nest.body)
    if not any(_takes_many_turns(x) for x in nest.body) or not any(map(_asks, _expressions(inside))):
        return nest
    return replace(nest, body=_all(nest.body))


def _takes_many_turns(statement: Stmt, around: int = 1) -> bool:
    """Whether what is innermost is done often; a size that a call decides is large."""
    if not isinstance(statement, Loop):
        return around >= MANY
    return any(_takes_many_turns(x, around * (_turns(statement) or MANY)) for x in statement.body)


def _asks(x: Expr) -> bool:
    """Whether an answer may depend on a loop's turn."""
    return isinstance(x, Binary) and x.left.dtype is int64 and x.op in (*COMPARISONS, "//", "%")


def _all(body: Block) -> Block:
    return tuple(part for statement in body for part in _parts(statement))


def _parts(statement: Stmt) -> Block:
    """What stands in the place of a statement."""
    if not isinstance(statement, Loop):
        return (statement,)
    inside = _conditions(statement)
    n = _divisor(statement, inside)
    if n is not None:
        return _all(_tiled(statement, n))
    if _is_written_out(statement, inside):
        return tuple(part for turn in range(_turns(statement)) for part in _all(_at(statement, size(turn))))
    ends = _ends(statement, inside)
    longest = max((stop - start for start, stop in pairwise(ends)), default=0)
    if longest == _turns(statement):
        return (replace(statement, body=_all(statement.body)),)
    found = []
    for start, stop in pairwise(ends):
        piece = _from(statement, start, stop)
        found.append(replace(piece, body=_all(piece.body)) if stop - start == longest else piece)
    return tuple(found)


def _tiled(loop: Loop, n: int) -> Block:
    """Two loops, over the index divided by n and over what is left; and one for the last turns."""
    turns = _turns(loop)
    outer, inner = Index(loop.index.name, turns // n), Index(loop.index.name + "_in", n)
    tile = replace(loop, index=inner, extent=size(n), body=_at(loop, outer * size(n) + inner))
    whole = replace(loop, index=outer, extent=size(turns // n), body=(tile,))
    return (whole, _from(loop, turns - turns % n, turns)) if turns % n else (whole,)


def _from(loop: Loop, start: int, stop: int) -> Loop:
    """Some turns of a loop."""
    index = Index(loop.index.name, stop - start)
    return replace(loop, index=index, extent=size(stop - start), body=_at(loop, index + size(start)))


def _at(loop: Loop, position: Expr) -> Block:
    """The body of a loop in another turn."""
    return _moved(loop.body, Substitution({loop.index: position}), {})


def _moved(body: Block, moved: Substitution, known: dict[Expr, Expr]) -> Block:
    """The statements for other turns; `known` are the scalars that are constants there."""
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
    """The comparisons and divisions of positions inside of a loop, if it may be copied."""
    inside = statements(loop.body)
    if loop.kind == "parallel" or not _turns(loop) or len(inside) > MOST_STATEMENTS or not all(map(_is_plain, inside)):
        return []
    parts = _expressions(inside)
    if any(isinstance(x, CheckedIndex) for x in parts):
        return []
    return [x for x in parts if isinstance(x, Binary) and _asks(x) and loop.index in x.free]


def _expressions(inside: Sequence[Stmt]) -> list[Expr]:
    return walk(*(x for statement in inside for x in roots(statement)))


def _turns(loop: Loop) -> int:
    """How many there are; 0 if that is not known."""
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 0


def _divisor(loop: Loop, inside: Sequence[Binary]) -> int | None:
    """By what the position is divided in a long loop that stores."""
    found = [int(x.right.value) for x in inside if x.op in ("//", "%") and isinstance(x.right, Const)
             and affine(x.left).terms.get(loop.index) == 1]
    n = max(found, default=1)
    adds = any(isinstance(x, Update) for x in loop.body)
    return n if 1 < n <= MOST_TURNS and _turns(loop) >= FEWEST and not adds else None


def _is_written_out(loop: Loop, inside: Sequence[Binary]) -> bool:
    """Whether a few turns have answers of their own."""
    return _turns(loop) <= MOST_TURNS and any(x.op in COMPARISONS for x in inside)


def _ends(loop: Loop, inside: Sequence[Binary]) -> list[int]:
    """Where the pieces of a loop begin, and the last one ends."""
    turns = _turns(loop)
    changes = {end for x in inside for end in _changes(x, loop.index, turns)} if turns >= FEWEST else set()
    ends = sorted({0, turns, *changes})
    cut = turns - max(stop - start for start, stop in pairwise(ends)) if turns else 0
    return ends if len(ends) <= MOST + 1 and cut * EDGE <= turns else [0, turns]


def _is_plain(x: Stmt) -> bool:
    return isinstance(x, (Let, Store, Update, Accumulator)) or (isinstance(x, Loop) and isinstance(x.extent, Const))


def _changes(x: Expr, index: Index, extent: int) -> Iterator[int]:
    """Within which turns the answer of a comparison becomes known, or other, whatever the other loops' turns."""
    match x:
        case Binary(op="<" | "<=" | ">" | ">=" as op, left=left, right=right):
            sign = 1 if op in (">", ">=") else -1
            form = (affine(left) + affine(right).scaled(-1)).scaled(sign)       # is at least 0, or 1
            by = form.terms.get(index)
            low, high = affine_bounds(Affine({k: c for k, c in form.terms.items() if k is not index}, form.constant))
            if not (isinstance(by, int) and isinstance(low, int) and isinstance(high, int)):
                return
            strict = op in ("<", ">")
            ends = sorted(-((least - strict) // by) if by > 0 else (least - strict) // -by + 1 for least in (low, high))
            if (ends[1] - ends[0]) * EDGE <= extent:
                yield from (end for end in ends if 0 < end < extent)
