"""Packing by masked loads: a panel's vectors that are several runs of memory, as columns of windows are."""
from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Index
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    ONE,
    ZERO,
    address,
    between,
    ceil_div,
    const,
    loop,
    masked_load,
    maximum,
    minimum,
    product,
    store_vector,
    unravel,
    zero,
)

if TYPE_CHECKING:
    from tenon.backends.cpu.contraction.packing import Pack

MAX_RUNS = 5            # of memory in a vector, which a masked load each brings together


def runs_in_a_vector(pack: Pack) -> int | None:
    """How many runs of memory a vector of a line has at most, where pieces of vectors can be copied; else None."""
    if len(pack.outer_sizes) < 2:
        return None
    run, x = pack.outer_sizes[-1], pack.operand
    fits = x.contiguous == "outer" and x.step <= 2 and not x.flat and pack.width % pack.lanes == 0
    if not fits or not isinstance(run, ir.Constant) or run.constant < 1:
        return None
    if not x.tapped and (x.inside is not None or len(pack.depth_sizes) > 1):
        return None
    return runs_among(pack.lanes, run.constant)


def runs_among(lanes: int, run: int) -> int | None:
    """How many runs so many neighbours may lie in, if a vector of them is worth its masked loads."""
    aligned = run % lanes == 0 or lanes % run == 0
    count = max(lanes // run, 1) if aligned else (lanes + run - 2) // run + 1
    return count if count <= MAX_RUNS else None


def pack_pieces(pack: Pack, count: int) -> None:
    """Every vector of a line is at most `count` runs of memory: masked loads of them, one into the other.

    Which lanes a run has is found once for all lines of a tap: for those that differ in the first component of
    depth only.  One vector of all lines comes after the other: its masks stay in registers, and the rows that its
    taps share stay in the first cache.  Where elements are apart all vectors of a line go along side by side, which
    takes 0.95 of the time of a 1 x 1 convolution on Zen 4.
    """
    b, together = pack.b, pack.lanes if pack.operand.step == 1 else pack.width
    taps = product(b, pack.depth_sizes[1:]) if pack.depth_sizes[1:] else ONE
    end = b.add(pack.k0, pack.depth)
    with loop(b, ZERO, const(pack.width), const(together), short=True) as (start, _):
        vectors = [Vector(pack, b.add(start, const(lane)), count) for lane in range(0, together, pack.lanes)]
        with loop(b, ZERO, taps, short=True) as (tap, _):
            index = unravel(b, tap, pack.depth_sizes[1:]) if pack.depth_sizes[1:] else ()
            first, last = (ceil_div(b, maximum(b, b.sub(k, tap), ZERO), taps) for k in (pack.k0, end))
            masks = [vector.masks((first, *index)) for vector in vectors]
            with loop(b, first, last, short=True) as (k, _):
                line = b.sub(b.add(b.mul(k, taps), tap), pack.k0)
                for vector, lanes in zip(vectors, masks, strict=True):
                    store_vector(b, vector.value((k, *index), lanes), pack.slot(line, vector.lane))


class Vector:
    """One vector of the lines of a panel, and the runs of memory that it is made of."""

    def __init__(self, pack: Pack, lane: ir.Value, count: int) -> None:
        self.pack, self.lane, b = pack, lane, pack.b
        position, extent = b.add(pack.first, lane), pack.outer_sizes[-1]
        room = b.sub(extent, b.urem(position, extent))          # lanes before the second run
        self.starts = [ZERO] + [b.add(room, b.mul(const(k), extent)) for k in range(count - 1)]
        self.ends = [minimum(b, end, minimum(b, b.sub(pack.count, lane), const(pack.lanes)))
                     for end in [*self.starts[1:], const(pack.lanes)]]
        self.outers = [unravel(b, b.add(position, start), pack.outer_sizes) for start in self.starts]

    def masks(self, k: Index) -> list[list[ir.Value]]:
        """The masks of the lanes of each run that are in memory, for what loads it."""
        pack, b, found = self.pack, self.pack.b, []
        for start, end, outer in zip(self.starts, self.ends, self.outers, strict=True):
            low, high = start, end
            if pack.operand.inside is not None:
                limits = pack.operand.inside(b, pack.args, pack.g, outer, k)
                first, last = (b.add(start, b.sub(limit, outer[-1])) for limit in limits)
                low, high = maximum(b, low, first), minimum(b, high, last)
            low, high = (b.trunc(maximum(b, limit, ZERO), I32) for limit in (low, high))
            apart = [] if pack.operand.step == 1 else pack.masks_apart(low, high)
            found.append([between(b, low, high, pack.lanes), *apart])
        return found

    def value(self, k: Index, masks: list[list[ir.Value]]) -> ir.Value:
        """The vector at depth k."""
        pack, b, element = self.pack, self.pack.b, self.pack.spec.element
        assert pack.operand.pointer is not None
        value: ir.Value = zero(ir.VectorType(element, pack.lanes))
        for start, outer, (mask, *apart) in zip(self.starts, self.outers, masks, strict=True):
            where = pack.operand.pointer(b, pack.args, pack.g, outer, k)
            where = address(b, where, b.mul(start, const(-pack.operand.step)), element)
            value = b.select(mask, pack.every_second(where, apart), value) if apart else \
                masked_load(b, where, mask, value)
        return value
