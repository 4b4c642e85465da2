"""Kernel -> the loads and stores of which it is not proved that they stay within their buffers.

    for access in unproved(kernel): print(access)
    verify_bounds(kernel)                           # raises where a position made of loop variables is not proved
    verify_bounds(kernel, [B - 3])                  # the same where B is at least 3

Positions that data decide (counts of a sort, places of a search) cannot be proved: a kernel can carry checks of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.errors import BoundsError
from tenon.loops.expressions import Binary, Buffer, Const, Expr, Index, Load, SizeOf, size
from tenon.loops.index_facts import Interval
from tenon.loops.loop_ir import (
    Accumulator,
    Block,
    BlockedAttention,
    Contraction,
    Kernel,
    Let,
    Loop,
    Stmt,
    Store,
    TransposeTile,
    roots,
)
from tenon.loops.ranges import Ranges
from tenon.loops.traversal import walk
from tenon.records import dataclass

COUNTED = (Binary, Const, Index, SizeOf)      # what positions that no data decide are made of


@dataclass(frozen=True, eq=False)
class Access:
    """A load or a store, with what is known of its position."""

    nest: int
    statement: Stmt
    kind: str               # "load of" or "store to"
    buffer: Buffer
    offset: Expr            # as it stands there
    position: Expr          # the same without names
    mask: Expr | None
    interval: Interval
    by_data: bool           # whether data decide the position, in a statement that can check it

    def __str__(self) -> str:
        low, high = ("?" if n is None else str(n) for n in self.interval)
        where = "" if self.mask is None else f" where {self.mask}"
        return (f"nest {self.nest}: {self.kind} {self.buffer.name}[{self.position}]{where}, of {self.buffer.elements} "
                f"elements: the position is in [{low}, {high}]")


def verify_bounds(kernel: Kernel, given: Iterable[Dim] = ()) -> Kernel:
    """The kernel; raises BoundsError where a position that loops alone decide is not proved."""
    wrong = [access for access in unproved(kernel, given) if not access.by_data]
    if wrong:
        raise BoundsError(f"kernel {kernel.name}: {wrong[0]}",
                          hint="a condition of the transformation that made this position does not hold")
    return kernel


def unproved(kernel: Kernel, given: Iterable[Dim] = ()) -> list[Access]:
    """The accesses of which nothing proves that they stay within their buffers; sizes that are `given` are natural."""
    known = Ranges(given=tuple(given))
    return [access for number, nest in enumerate(kernel.nests) for access in _block(number, nest.body, known)]


def _block(nest: int, body: Block, known: Ranges) -> Iterator[Access]:
    for statement in body:
        yield from _accesses(nest, statement, _around(statement, known))
        match statement:
            case Loop(index=index, extent=extent, body=inner):
                yield from _block(nest, inner, _without(known, inner).inside(index, extent))
            case Contraction(epilogue=inner) | BlockedAttention(stores=inner):
                yield from _block(nest, inner, _around(statement, known, stored=True))
            case Let(local=local, value=value):
                known = known.let(local, value)
            case Accumulator(local=local):
                known = known.changing(local)


def _without(known: Ranges, body: Block) -> Ranges:
    """What is known at the start of any iteration of a loop: names that an iteration gives may be those of the last
    one."""
    for statement in body:
        if isinstance(statement, (Let, Accumulator)):
            known = known.changing(statement.local)
    return known


def _around(x: Stmt, known: Ranges, stored: bool = False) -> Ranges:
    """What is known of the indices of a statement that is made of loops.

    Where a product has `stored`, nothing is known of its sums, which may have no iteration.
    """
    for index in _indices(x, stored):
        known = known.inside(index, size(index.extent))
    return known


def _indices(x: Stmt, stored: bool) -> Sequence[Index]:
    match x:
        case Contraction(batch=batch, rows=rows, columns=columns, depth=depth, chunk=chunk):
            return (*batch, *rows, *columns, *(() if stored else depth), *([] if chunk is None else [chunk.number]))
        case BlockedAttention(batch=batch, row=row, column=column, depth=depth, width=width):
            return *batch, row, column, depth, width
    return ()


def _accesses(nest: int, x: Stmt, known: Ranges) -> Iterator[Access]:
    """Of the statement itself: what it reads, and where it writes."""
    listed = [("load of", load.buffer, load.offset, load.mask) for load in walk(*roots(x)) if isinstance(load, Load)]
    if isinstance(x, Store):
        listed.append(("store to", x.buffer, x.offset, None))
    if isinstance(x, TransposeTile):
        last = (x.lines - 1) * x.buffer.type.shape[1] + x.columns - 1
        listed.append(("store to", x.buffer, size(last), None))
    for kind, buffer, offset, mask in listed:
        inside = known.where(mask)
        if not inside.is_within(offset, buffer.elements):
            position = inside.written_out(offset)
            by_data = not isinstance(x, (Contraction, BlockedAttention)) and not all(
                isinstance(part, COUNTED) for part in walk(position))
            yield Access(nest, x, kind, buffer, offset, position, mask, inside.interval(offset), by_data)
