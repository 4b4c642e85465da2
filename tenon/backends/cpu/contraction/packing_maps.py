"""Maps: panels of what is computed of neighbours in memory, in vectors: a scaled, masked or converted factor."""
from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from .emit import (
    I32,
    ZERO,
    address,
    between,
    const,
    element_bytes,
    load_vector,
    loop,
    minimum,
    prefetch,
    store_vector,
    transpose,
    unravel,
)
from .packing_squares import in_whole_squares
from .shape import LINE
from .spec import Index, Mapped, left_layout

if TYPE_CHECKING:
    from .packing import Pack

AHEAD = 16              # lines of memory, of which few bytes each are read for a panel


def pack_map(pack: Pack, mapped: Mapped, side: str) -> None:
    """Write a panel, by the way in which neighbours lie."""
    if pack.operand.contiguous == "outer":
        _lines(pack, mapped)
    elif side == "left":
        _rows(pack, mapped, left_layout(pack.spec, pack.tile)[1])
    else:
        _squares(pack, mapped)


def _lines(pack: Pack, mapped: Mapped) -> None:
    """Neighbours of a line are neighbours in memory; what is beyond the last one is zero."""
    b, size = pack.b, element_bytes(mapped.memory)
    count = b.trunc(pack.count, I32)
    masks = [between(b, I32(0), count, pack.lanes, lane) for lane in pack.lanes_of_line()]
    with b.if_else(b.icmp_signed("==", pack.count, const(pack.width)), likely=True) as (whole, some):
        for place, here in ((whole, [None] * len(masks)), (some, masks)):
            with place, loop(b, ZERO, pack.depth, short=True) as (k, _):
                index, later = _steps(pack, k), _steps(pack, b.add(k, const(AHEAD)))
                for lane, mask in zip(pack.lanes_of_line(), here, strict=True):
                    outer = unravel(b, b.add(pack.first, const(lane)), pack.outer_sizes)
                    if lane * size % LINE < pack.lanes * size:
                        prefetch(b, mapped.pointer(b, pack.args, pack.g, outer, later), 2)
                    value = mapped.vector(b, pack.args, pack.g, outer, index, pack.lanes, mask)
                    store_vector(b, value, pack.slot(k, const(lane)))


def _rows(pack: Pack, mapped: Mapped, row_apart: int) -> None:
    """Neighbours along depth are neighbours in memory: rows of left, which stay rows."""
    b, lanes, element = pack.b, pack.lanes, pack.spec.element
    whole = b.and_(pack.depth, const(-lanes))
    mask = between(b, I32(0), b.trunc(b.sub(pack.depth, whole), I32), lanes)
    with loop(b, ZERO, const(pack.width), short=True) as (i, _):
        outer, row = pack.outer_at(i), address(b, pack.panel, b.mul(i, const(row_apart)), element)

        def copy(k: ir.Value, mask: ir.Value | None) -> None:
            value = mapped.vector(b, pack.args, pack.g, outer, _steps(pack, k), lanes, mask)
            store_vector(b, value, address(b, row, k, element))
        with loop(b, ZERO, whole, const(lanes), short=True) as (k, _):
            copy(k, None)
        with b.if_then(b.icmp_signed("<", whole, pack.depth)):
            copy(whole, mask)


def _squares(pack: Pack, mapped: Mapped) -> None:
    """The same for columns of right: squares that are transposed."""
    b, lanes, element = pack.b, pack.lanes, pack.spec.element
    whole = in_whole_squares(pack)
    with b.goto_entry_block():
        square = b.alloca(ir.VectorType(element, lanes), lanes)
    with loop(b, ZERO, const(pack.width), const(lanes), short=True) as (group, _), \
            loop(b, ZERO, pack.depth, const(lanes), short=True) as (k, _):
        left = minimum(b, b.sub(pack.depth, k), const(lanes))
        mask = None if whole else between(b, I32(0), b.trunc(left, I32), lanes)
        with loop(b, ZERO, const(lanes), short=True) as (i, _):
            outer = pack.outer_at(b.add(group, i))
            value = mapped.vector(b, pack.args, pack.g, outer, _steps(pack, k), lanes, mask)
            store_vector(b, value, address(b, square, b.mul(i, const(lanes)), element))
        rows = [load_vector(b, address(b, square, const(i * lanes), element), element, lanes) for i in range(lanes)]
        for step, column in enumerate(transpose(b, rows)):
            place = pack.slot(b.add(k, const(step)), group) if whole else \
                address(b, square, const(step * lanes), element)
            store_vector(b, column, place)
        if not whole:                       # lines behind the last one are not this panel's
            with loop(b, ZERO, left, short=True) as (step, _):
                column = load_vector(b, address(b, square, b.mul(step, const(lanes)), element), element, lanes)
                store_vector(b, column, pack.slot(b.add(k, step), group))


def _steps(pack: Pack, k: ir.Value) -> Index:
    """The index of so many steps along depth from where the panel begins."""
    return unravel(pack.b, pack.b.add(pack.k0, k), pack.depth_sizes)
