"""Local rows -> fewer of them: a row that is filled in the last loop that reads another one takes its place.

    for k: row1[k] = exp(row0[k] - m); s += row1[k]     ->      for k: row0[k] = exp(row0[k] - m); s += ...

The first cache holds few rows of a few thousand elements, beside what is read and written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.loops.affine import affine
from tenon.loops.expressions import Buffer, Expr, Index, Load
from tenon.loops.loop_ir import Accumulator, Block, Let, Loop, Nest, Stmt, Store, Update, roots, statements
from tenon.loops.traversal import replace, walk
from tenon.records import replace as changed

FLAT = (Accumulator, Let, Store, Update)


def with_shared_rows(nest: Nest) -> Nest:
    """The nest, with as little memory of a thread as does."""
    body, rows = with_fewer_rows(nest.body, nest.locals)
    return nest if len(rows) == len(nest.locals) else changed(nest, body=body, locals=tuple(rows))


def with_fewer_rows(body: Block, rows: Sequence[Buffer]) -> tuple[Block, list[Buffer]]:
    """The same with as few rows as do, and those."""
    left = list(rows)
    for row in rows:
        taken = next((other for other in left if other is not row and may_share_memory(body, other, row)), None)
        if taken is not None:
            body = tuple(_renamed(statement, row, taken) for statement in body)
            left.remove(row)
    return body, left


def may_share_memory(body: Block, old: Buffer, new: Buffer) -> bool:
    """Whether no element of the old row is read after that of the new one was stored: no dependence is reversed.

    The loop that fills the new row is the last to read the old one.  The anti-dependences between them are of
    distance 0 (Wolfe 1989): both elements are at the same place, another one each iteration, and the read comes first.
    All loops that touch the rows stand beside each other, so nothing is read in another iteration of some loop around
    them.
    """
    found = next((x for x in map(_flat_loops, _blocks(body)) if any(_touches(loop.body, old) for loop in x)), [])
    first, second = ([loop for loop in found if _touches(loop.body, row)] for row in (old, new))
    if old.type != new.type or len(first) < 2 or not second or first[-1] is not second[0]:
        return False
    beside = sum(_touches(loop.body, row) for loop in found for row in (old, new))
    if beside != sum(_touches(statements(body), row) for row in (old, new)):
        return False
    filling = second[0].body
    written = [k for k, x in enumerate(filling) if isinstance(x, Store) and x.buffer in (old, new)]
    stores = [filling[k] for k in written]
    if len(stores) != 1 or not isinstance(stores[0], Store) or stores[0].buffer is old:
        return False
    same = all(x.offset is stores[0].offset for x in _loads(filling, old))
    return same and is_injective(stores[0].offset, second[0].index) and not _loads(filling[written[0] + 1:], old)


def is_injective(offset: Expr, index: Index) -> bool:
    """Whether the place is another one each iteration: it is affine in the index, which has a step that is not 0."""
    terms = affine(offset).terms
    step = terms.get(index, 0)
    return isinstance(step, int) and step != 0 and not any(index in atom.free for atom in terms if atom is not index)


def _blocks(body: Block) -> Iterator[Block]:
    """The statements of a nest, and those of every loop in it."""
    yield body
    for statement in body:
        if isinstance(statement, Loop):
            yield from _blocks(statement.body)


def _flat_loops(block: Block) -> list[Loop]:
    """The loops without others inside."""
    return [x for x in block if isinstance(x, Loop) and all(isinstance(inner, FLAT) for inner in x.body)]


def _touches(block: Sequence[Stmt], row: Buffer) -> int:
    """How often statements, those inside of them aside, read or write a row."""
    return len(_loads(block, row)) + sum(isinstance(x, Store) and x.buffer is row for x in block)


def _loads(block: Sequence[Stmt], row: Buffer) -> list[Load]:
    return [x for statement in block for x in walk(*roots(statement)) if isinstance(x, Load) and x.buffer is row]


def _renamed(statement: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """The statement with one row in place of another."""
    def moved(x: Expr) -> Expr:
        loads = (y for y in walk(x) if isinstance(y, Load) and y.buffer is old)
        return replace(x, {y: Load(new, y.offset, y.mask) for y in loads})
    match statement:
        case Loop(body=body):
            return changed(statement, body=tuple(_renamed(x, old, new) for x in body))
        case Store(buffer=buffer, value=value):
            return changed(statement, buffer=new if buffer is old else buffer, value=moved(value))
        case Let(value=value) | Update(value=value):
            return changed(statement, value=moved(value))
    return statement
