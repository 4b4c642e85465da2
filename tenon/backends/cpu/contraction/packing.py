"""An operand -> a packed panel: `width` rows of left (or columns of right) side by side, one line for every k.

    panel[k, i] = operand[first + i, k0 + k]        i < width, zero (or anything) where first + i is past the end

This is where im2col, transposition and conversion happen.  The way is chosen by what the operand says of itself: lines
(neighbours in memory are neighbours in the panel: vector copies), pieces (so they are, in runs shorter than a panel),
chunks (rows of left are copied as they lie), squares (neighbours along depth: vectors transposed), spans (a step
between neighbours, or holes along depth: scalar copies), elements (only `load` is known).
"""
from collections.abc import Callable, Sequence

from llvmlite import ir

from tenon.backends.cpu.contraction.bf16_dot_products import pack_pairs
from tenon.backends.cpu.contraction.gemm_spec import (
    Access,
    GemmSpec,
    Index,
    Operand,
    Size,
    Tile,
    copies_rows,
    is_ragged,
    left_layout,
    reads_in_place,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    between,
    const,
    load_vector,
    loop,
    masked_load,
    maximum,
    minimum,
    prefetch,
    product,
    runs,
    splat,
    store_vector,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.microkernel_types import BYTE
from tenon.backends.cpu.contraction.pack_masked_runs import pack_pieces, runs_in_a_vector
from tenon.backends.cpu.contraction.pack_transposed import pack_squares, pack_transposed_runs
from tenon.target import LINE_BYTES

PREFETCH_DISTANCE_BYTES = 2 * LINE_BYTES    # bytes behind what is read of a line of left


def emit_pack(module: ir.Module, name: str, spec: GemmSpec, tile: Tile, side: str) -> ir.Function:
    """void name(arguments..., g, first, count, k0, depth, panel) for side "left" or "right"."""
    operand, outer_sizes = (spec.left, spec.rows) if side == "left" else (spec.right, spec.columns)
    width = tile.rows if side == "left" else tile.width
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 5, POINTER])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.args[-1].add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    pack = Pack(b, spec, tile, operand, outer_sizes, width, function.args)
    if is_ragged(spec) or operand.zipped is not None or operand.rounded:
        pack_pairs(pack, side)
    elif operand.narrow is not None and width % tile.lanes == 0:
        pack_squares(pack)
    elif operand.pointer is None:
        pack.elements()
    elif (count := runs_in_a_vector(pack)) is not None:
        pack_pieces(pack, count)
    elif operand.contiguous == "outer" and operand.step == 1:
        pack.lines()
    elif side == "left" and reads_in_place(operand, len(spec.depth)):
        pack.chunks(*left_layout(spec, tile)[1:3])
    elif side == "left" and copies_rows(spec):
        pack.rows(left_layout(spec, tile)[1])
    elif reads_in_place(operand, len(spec.depth)) and width % tile.lanes == 0:
        pack_squares(pack)
    elif operand.contiguous == "depth" and operand.step <= 2 and width % tile.lanes == 0:
        pack_transposed_runs(pack)
    else:
        pack.spans()
    b.ret_void()
    return function


class Pack:
    """The values that all four ways of packing work with."""

    def __init__(self, b: ir.IRBuilder, spec: GemmSpec, tile: Tile, operand: Operand, outer_sizes: Sequence[Size],
                 width: int, values: Sequence[ir.Value]) -> None:
        self.b, self.spec, self.tile, self.operand, self.width, self.lanes = b, spec, tile, operand, width, tile.lanes
        self.args = tuple(values[:len(spec.arguments)])
        g, self.first, self.count, self.k0, self.depth, self.panel = values[len(spec.arguments):]
        self.g = unravel(b, g, [size(b, self.args) for size in spec.batch])
        self.outer_sizes = [size(b, self.args) for size in outer_sizes]
        self.depth_sizes = [size(b, self.args) for size in spec.depth]

    def slot(self, k: ir.Value, i: ir.Value) -> ir.Value:
        return address(self.b, self.panel, self.b.add(self.b.mul(k, const(self.width)), i), self.spec.element)

    def clear(self, start: ir.Value) -> None:
        """Zero the columns of the panel from `start` on."""
        with loop(self.b, ZERO, self.depth) as (k, _), loop(self.b, start, const(self.width)) as (i, _):
            self.b.store(zero(self.spec.element), self.slot(k, i))

    def lines(self) -> None:
        """Neighbours of a line are neighbours in memory: copy vectors, masked where a line has holes or joints."""
        b = self.b
        outer_sizes = [product(b, self.outer_sizes)] if self.operand.flat else self.outer_sizes
        whole = b.icmp_signed("==", self.count, const(self.width))
        if len(outer_sizes) > 1:
            room = b.sub(outer_sizes[-1], b.urem(self.first, maximum(b, outer_sizes[-1], ONE)))
            whole = b.and_(whole, b.icmp_signed(">=", room, const(self.width)))
        with runs(b, self.first, self.count, outer_sizes) as (i, start, length):
            outer = unravel(b, start[0], self.outer_sizes) if self.operand.flat else start
            masks = None if self.operand.inside else self.line_masks(i, b.add(i, length))     # found once for all lines
            with runs(b, self.k0, self.depth, self.depth_sizes) as (k, k_start, k_length), \
                    loop(b, ZERO, k_length) as (step, _):
                index = _along(b, k_start, step)
                self.line(b.add(k, step), i, length, outer, index, whole, masks)

    def line(self, k: ir.Value, i: ir.Value, length: ir.Value, outer: Index, index: Index, whole: ir.Value,
             masks: Sequence[ir.Value] | None) -> None:
        b, width = self.b, const(self.width)
        assert self.operand.pointer is not None
        low, high = i, b.add(i, length)                         # the lanes of this run that are in memory
        if self.operand.inside is not None:
            first, last = self.operand.inside(b, self.args, self.g, outer, index)
            low = maximum(b, low, b.add(i, b.sub(first, outer[-1])))
            high = minimum(b, high, b.add(i, b.sub(last, outer[-1])))
            whole = b.and_(whole, b.and_(b.icmp_signed("==", low, ZERO), b.icmp_signed("==", high, width)))
        source = address(b, self.operand.pointer(b, self.args, self.g, outer, index), b.neg(i), self.spec.element)
        target = self.slot(k, ZERO)
        if self.operand is self.spec.left:      # a few elements of many lines by turns, which no processor foresees
            prefetch(b, b.gep(source, [const(PREFETCH_DISTANCE_BYTES)], source_etype=BYTE))
        with b.if_else(whole, likely=True) as (copy, select):
            with copy:
                store_vector(b, load_vector(b, source, self.spec.element, self.width), target)
            with select:
                fills = b.icmp_signed("==", i, ZERO)
                for lane, mask in zip(self.lanes_of_line(), masks or self.line_masks(low, high), strict=True):
                    here, there = (address(b, base, const(lane), self.spec.element) for base in (source, target))
                    self.masked(here, there, mask, fills)

    def lanes_of_line(self) -> range:
        """The first lane of each vector of a line: of the machine's vectors, since wider masks compile badly."""
        return range(0, self.width, self.lanes)

    def line_masks(self, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """The masks of low <= i < high in the vectors of a line."""
        b = self.b
        low, high = b.trunc(minimum(b, low, const(self.width)), I32), b.trunc(maximum(b, high, ZERO), I32)
        return [between(b, low, high, min(self.lanes, self.width - lane), lane) for lane in self.lanes_of_line()]

    def masked(self, source: ir.Value, target: ir.Value, mask: ir.Value, fills: ir.Value) -> None:
        """Copy the lanes in the mask; the others are zero if this fills, or stay."""
        b = self.b
        before = load_vector(b, target, self.spec.element, mask.type.count)
        before = b.select(fills, zero(before.type), before)
        store_vector(b, masked_load(b, source, mask, before), target)

    def source(self) -> tuple[Access, ir.Type, Callable[[ir.IRBuilder, ir.Value], ir.Value]]:
        """Where elements are, their type there, and what makes them elements of the sums."""
        if self.operand.narrow is not None:
            return self.operand.narrow.pointer, self.operand.narrow.memory, self.operand.narrow.widen
        assert self.operand.pointer is not None
        return self.operand.pointer, self.spec.element, lambda b, value: value

    def chunks(self, row_apart: int, chunk_apart: int) -> None:
        """Rows are runs of memory: copy vectors of them, each to the place that a tile looks for it at."""
        b, lanes, element = self.b, self.lanes, self.spec.element
        assert self.operand.pointer is not None
        k_start, last = unravel(b, self.k0, self.depth_sizes), b.sub(self.count, ONE)
        whole = b.and_(self.depth, const(-lanes))
        rest = splat(b, b.trunc(b.sub(self.depth, whole), I32), lanes)
        mask = b.icmp_signed("<", ir.Constant(rest.type, list(range(lanes))), rest)
        with loop(b, ZERO, const(self.width)) as (i, _):        # past the end the last row serves, to no effect
            outer = unravel(b, b.add(self.first, minimum(b, i, last)), self.outer_sizes)
            row = self.operand.pointer(b, self.args, self.g, outer, k_start)
            target = address(b, self.panel, b.mul(i, const(row_apart)), element)

            def place(k: ir.Value) -> ir.Value:
                return address(b, target, b.mul(b.udiv(k, const(lanes)), const(chunk_apart)), element)
            with loop(b, ZERO, whole, const(lanes)) as (k, _):
                store_vector(b, load_vector(b, address(b, row, k, element), element, lanes), place(k))
            with b.if_then(b.icmp_signed("<", whole, self.depth)):
                rest_of_row = masked_load(b, address(b, row, whole, element), mask, zero(ir.VectorType(element, lanes)))
                store_vector(b, rest_of_row, place(whole))

    def rows(self, row_apart: int) -> None:
        """Neighbours along depth are, in short runs, neighbours in memory: a row is put together, vector by vector."""
        b, lanes = self.b, self.lanes
        last = b.sub(self.count, ONE)
        with loop(b, ZERO, const(self.width), short=True) as (i, _):
            outer = unravel(b, b.add(self.first, minimum(b, i, last)), self.outer_sizes)
            row = address(b, self.panel, b.mul(i, const(row_apart)), self.spec.element)
            with runs(b, self.k0, self.depth, self.depth_sizes) as (k, k_start, length), \
                    loop(b, ZERO, length, const(lanes), short=True) as (step, _):
                index = (*k_start[:-1], b.add(k_start[-1], step))
                value = self.along_depth(outer, index, minimum(b, b.sub(length, step), const(lanes)))
                store_vector(b, value, address(b, row, b.add(k, step), self.spec.element))

    def outer_at(self, i: ir.Value) -> Index:
        """The column i of the panel; past the end the last one serves, to no effect."""
        b = self.b
        return unravel(b, b.add(self.first, minimum(b, i, b.sub(self.count, ONE))), self.outer_sizes)

    def along_depth(self, outer: Index, index: Index, count: ir.Value) -> ir.Value:
        """A vector of `count` elements along depth, zeros where they are not in memory."""
        b, operand, low, high = self.b, self.operand, ZERO, count
        assert operand.pointer is not None
        if operand.inside is not None:
            limits = operand.inside(b, self.args, self.g, outer, index)
            first, last = (b.sub(limit, index[-1]) for limit in limits)
            low, high = maximum(b, low, first), maximum(b, minimum(b, high, last), ZERO)
        where = operand.pointer(b, self.args, self.g, outer, index)
        low, high = b.trunc(low, I32), b.trunc(high, I32)
        if operand.step == 2:
            return self.every_second(where, self.masks_apart(low, high))
        return masked_load(b, where, between(b, low, high, self.lanes),
                           zero(ir.VectorType(self.spec.element, self.lanes)))

    def masks_apart(self, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """The masks for the two halves of what lies between elements two apart, from the first to the last."""
        b, one = self.b, ir.Constant(I32, 1)
        low, high = b.shl(low, one), b.sub(b.shl(high, one), one)
        return [between(b, low, high, self.lanes, half) for half in (0, self.lanes)]

    def every_second(self, where: ir.Value, masks: Sequence[ir.Value]) -> ir.Value:
        """The even elements of the two halves of which these lanes are in memory."""
        b, lanes = self.b, self.lanes
        none = zero(ir.VectorType(self.spec.element, lanes))
        halves = [masked_load(b, address(b, where, const(half * lanes), self.spec.element), mask, none)
                  for half, mask in enumerate(masks)]
        return b.shuffle_vector(*halves, ir.Constant(ir.VectorType(I32, lanes), list(range(0, 2 * lanes, 2))))

    def spans(self) -> None:
        """Neighbours are apart in memory or in the panel: copy what of a run is in memory, zero the rest."""
        b, by_depth = self.b, self.operand.contiguous == "depth"
        with b.if_then(b.icmp_signed("<", self.count, const(self.width))):
            self.clear(self.count)
        with runs(b, self.first, self.count, self.outer_sizes) as (i, outer, length), \
                loop(b, ZERO, length if by_depth else ONE) as (lane, _), \
                runs(b, self.k0, self.depth, self.depth_sizes) as (k, index, k_length), \
                loop(b, ZERO, ONE if by_depth else k_length) as (step, _):
            outer, index = _along(b, outer, lane), _along(b, index, step)
            i, k, size = b.add(i, lane), b.add(k, step), k_length if by_depth else length
            low, high = ZERO, size
            if self.operand.inside is not None:
                start = (index if by_depth else outer)[-1]
                limits = self.operand.inside(b, self.args, self.g, outer, index)
                low, high = (minimum(b, maximum(b, b.sub(limit, start), ZERO), size) for limit in limits)
                high = maximum(b, low, high)
            for begin, end in (ZERO, low), (high, size):
                with loop(b, begin, end) as (at, _):
                    slot = self.slot(b.add(k, at), i) if by_depth else self.slot(k, b.add(i, at))
                    b.store(zero(self.spec.element), slot)
            with loop(b, low, high) as (at, _):
                self.element(k, i, outer, index, *((at, ZERO) if by_depth else (ZERO, at)))

    def elements(self) -> None:
        """One by one; the inner loop runs along what the operand calls contiguous, so that LLVM can vectorise it."""
        b, by_depth = self.b, self.operand.contiguous != "outer"
        with b.if_then(b.icmp_signed("<", self.count, const(self.width))):
            self.clear(self.count)
        with runs(b, self.first, self.count, self.outer_sizes) as (i, outer, length), \
                loop(b, ZERO, length if by_depth else ONE) as (lane, _), \
                runs(b, self.k0, self.depth, self.depth_sizes) as (k, index, k_length), \
                loop(b, ZERO, k_length) as (step, _), loop(b, ZERO, ONE if by_depth else length) as (more, _):
            self.element(k, i, outer, index, step, b.add(lane, more))

    def element(self, k: ir.Value, i: ir.Value, outer: Index, index: Index, step: ir.Value, lane: ir.Value) -> None:
        b = self.b
        outer, index = _along(b, outer, lane), _along(b, index, step)
        if self.operand.load is not None:
            value = self.operand.load(b, self.args, self.g, outer, index)
        else:
            assert self.operand.pointer is not None
            value = b.load(self.operand.pointer(b, self.args, self.g, outer, index), typ=self.spec.element)
        b.store(value, self.slot(b.add(k, step), b.add(i, lane)))


def _along(b: ir.IRBuilder, index: Index, steps: ir.Value) -> Index:
    """So many steps further along the last axis; of one row, or a depth of one, there is none."""
    return (*index[:-1], b.add(index[-1], steps)) if index else ()
