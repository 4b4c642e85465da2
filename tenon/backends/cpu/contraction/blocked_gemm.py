"""The loops around tiles that read packed panels: blocks of columns, rows and depth; in a block panel after panel.

    void region(arguments..., g, row_from, row_to, column_from, column_to, scratch)

A panel of right is packed when its turn has come, and all rows of the block meet it while it is in the caches; the
block of left stays in the second cache meanwhile.  Blocks of columns are cut only where sums wait for an epilogue.
Shallow products go along rows (`loops_rows_inside`): all panels of a block are packed, and a tile of rows meets them
all.
"""
from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tenon.backends.cpu.contraction import bf16_dot_products
from tenon.backends.cpu.contraction.block_epilogue import apart
from tenon.backends.cpu.contraction.gemm_spec import (
    PAIR_LANES,
    GemmSpec,
    Tile,
    columns_along,
    extent,
    in_registers,
    left_layout,
    loops_rows_inside,
    narrow_tile,
    packs_in_tiles,
    region_function,
    uses_block_epilogue,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    balanced,
    ceil_div,
    const,
    element_bytes,
    loop,
    maximum,
    minimum,
    unravel,
)
from tenon.backends.cpu.contraction.packing import emit_pack
from tenon.backends.cpu.contraction.panel_prefetch import fetches, line_of, nothing, sharers, shares_of
from tenon.backends.cpu.contraction.prepacked_operand import packed_block, shares_of_packed
from tenon.backends.cpu.contraction.register_tile import caller, row_apart, stores_plainly, tile_emitter
from tenon.backends.cpu.contraction.scratch import packs_left, packs_right, scratch_parts
from tenon.target import LINE_BYTES, round_up

PACK_LINES = 32         # of plain left are packed together, to read memory along its lines


def emit_packed(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """The function."""
    function = region_function(module, f"{name}.packed", spec, [POINTER])
    _Packed(module, name, spec, tile, function).emit()
    return function


class _Panel(NamedTuple):
    """What is known of a panel, and of its tiles, before the loop over rows: what that loop does for a tile is done
    between the products of two of them."""
    column: ir.Value
    columns: ir.Value       # there are from there on
    start: ir.Value
    first: ir.Value         # whether the block of depth is
    last: ir.Value
    apart: ir.Value         # bytes between rows of the result, where sums are only stored
    shares: list[ir.Value]  # of the next panel, which tiles fetch
    lines: list[ir.Value]


class _Packed:
    """The values that the loops share."""

    def __init__(self, module: ir.Module, name: str, spec: GemmSpec, tile: Tile, function: ir.Function) -> None:
        self.spec, self.tile = spec, tile
        self.pack_left, self.pack_right = (
            emit_pack(module, f"{name}.pack_{side}", spec, tile, side) if needed(spec, tile) else None
            for side, needed in (("left", packs_left), ("right", packs_right)))
        self.narrow = narrow = narrow_tile(spec, tile)
        self.inner = tile_emitter(module, f"{name}.tile", spec, tile) if not in_registers(spec) else \
            caller(bf16_dot_products.emit_pair_tile(module, f"{name}.tile", spec, tile))
        self.last = self.inner if narrow is None else tile_emitter(module, f"{name}.last_tile", spec, tile, narrow)
        self.args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
        self.g, self.row_from, self.row_to, self.column_from, self.column_to, scratch = values
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        sizes = scratch_parts(spec, tile)
        ahead = b.and_(b.neg(b.ptrtoint(scratch, I64)), const(LINE_BYTES - 1))
        aligned = b.gep(scratch, [ahead], source_etype=ir.IntType(8))
        self.right, self.left, self.sums = (
            b.gep(aligned, [const(sum(sizes[:i]))], source_etype=ir.IntType(8)) for i in range(3))
        self.depth = extent(b, self.args, spec.depth)
        self.along = loops_rows_inside(spec, tile)

    def emit(self) -> None:
        """The whole function."""
        b, tile, depth = self.b, self.tile, self.depth
        self.depth_block = balanced(b, depth, const(tile.depth), tile.lanes)
        self.one_pass = b.icmp_signed("<=", depth, self.depth_block)
        self.row_block = balanced(b, b.sub(self.row_to, self.row_from), const(tile.block_rows), tile.rows)
        columns = maximum(b, b.sub(self.column_to, self.column_from), ONE)
        self.together = uses_block_epilogue(self.spec)
        if self.along:
            self.column_block = const(columns_along(self.spec, tile))
        else:
            self.column_block = columns if self.spec.stored_at is not None else b.select(
                ir.Constant(I1, 0) if self.together else self.one_pass, columns,
                balanced(b, columns, const(tile.columns), tile.width))
        if in_registers(self.spec):
            bf16_dot_products.configure(b)
        with loop(b, self.column_from, self.column_to, self.column_block) as (n, _), \
                loop(b, self.row_from, self.row_to, self.row_block) as (m, _), \
                loop(b, ZERO, maximum(b, depth, ONE), self.depth_block) as (k, _):
            self.block(m, n, k)
        if in_registers(self.spec):
            bf16_dot_products.release(b)
        b.ret_void()

    def block(self, m0: ir.Value, n0: ir.Value, k0: ir.Value) -> None:
        """Some rows and columns, over a block of depth: all tiles of a panel, panel after panel."""
        b, tile = self.b, self.tile
        self.n_end = minimum(b, b.add(n0, self.column_block), self.column_to)
        self.m_end = minimum(b, b.add(m0, self.row_block), self.row_to)
        self.k_size = minimum(b, self.depth_block, b.sub(self.depth, k0))
        self.origin = m0, n0, k0
        self.pack_rows()
        if self.along:
            self.pack_panels()
            with loop(b, m0, self.m_end, const(tile.rows)) as (m, _), \
                    loop(b, n0, self.n_end, const(tile.width)) as (n, _):
                self.one(m, self.known(n))
            return
        with loop(b, n0, self.n_end, const(tile.width)) as (n, _):
            panel = self.known(n)
            with loop(b, m0, self.m_end, const(tile.rows)) as (m, _):
                self.one(m, panel)
        if self.together:
            self.finish(m0, n0, k0)

    def finish(self, m0: ir.Value, n0: ir.Value, k0: ir.Value) -> None:
        """The epilogue takes the sums of the block, if they are finished."""
        b, spec = self.b, self.spec
        assert spec.finish is not None
        batch = unravel(b, self.g, [size(b, self.args) for size in spec.batch])
        with b.if_then(b.icmp_signed(">=", b.add(k0, self.depth_block), self.depth)):
            spec.finish(b, self.args, batch, m0, n0, b.sub(self.m_end, m0), b.sub(self.n_end, n0), self.sums,
                        apart(self.tile))

    # ------------------------------------------------------------ left

    def pack_rows(self) -> None:
        """Pack the block of left; where it is read in place, its last rows if they are no whole tile."""
        b, rows, (m0, _, _) = self.b, const(self.tile.rows), self.origin
        if self.pack_left is None:
            return
        in_place, *_ = left_layout(self.spec, self.tile)
        first = b.sub(self.m_end, b.urem(b.sub(self.m_end, m0), rows)) if in_place else m0
        self.pack_left_from(first)

    def pack_left_from(self, first: ir.Value) -> None:
        """Rows first .. m_end to panels; of lines of memory a few at a time, as memory lies."""
        b, spec, tile, x, (_, _, k0) = self.b, self.spec, self.tile, self.spec.left, self.origin
        plain = x.pointer is not None and x.contiguous == "outer" and x.inside is None and len(spec.depth) == 1
        at_once = const(PACK_LINES if x.zipped is None else PAIR_LANES) if plain else maximum(b, self.k_size, ONE)
        with loop(b, ZERO, self.k_size, at_once) as (k, _), loop(b, first, self.m_end, const(tile.rows)) as (m, _):
            place = b.add(b.mul(b.sub(m, first), self.row_size()), b.mul(k, const(tile.rows)))
            count, lines = (minimum(b, most, b.sub(end, at)) for most, end, at in (
                (const(tile.rows), self.m_end, m), (at_once, self.k_size, k)))
            b.call(self.pack_left, [*self.args, self.g, m, count, b.add(k0, k), lines,
                                    address(b, self.left, place, spec.element)])

    def row_size(self) -> ir.Value:
        """Elements that a row of a packed block of left takes."""
        b, (_, row_apart, *_) = self.b, left_layout(self.spec, self.tile)
        if row_apart > self.tile.depth:
            return const(row_apart)
        return b.mul(ceil_div(b, self.k_size, const(self.tile.lanes)), const(self.tile.lanes))

    def rows_at(self, m: ir.Value) -> ir.Value:
        """Where the tile at row m finds its rows."""
        b, spec, tile, (m0, _, k0) = self.b, self.spec, self.tile, self.origin
        in_place, *_ = left_layout(spec, tile)
        if not in_place:
            return address(b, self.left, b.mul(b.sub(m, m0), self.row_size()), spec.element)
        assert spec.left.pointer is not None
        index = [unravel(b, place, [size(b, self.args) for size in axis])
                 for place, axis in zip((self.g, m, k0), (spec.batch, spec.rows, spec.depth), strict=True)]
        whole = b.icmp_signed(">=", b.sub(self.m_end, m), const(tile.rows))
        return b.select(whole, spec.left.pointer(b, self.args, *index), self.left)

    # ------------------------------------------------------------ right

    def pack_panels(self) -> None:
        """Pack all panels of the block, side by side."""
        with loop(self.b, self.origin[1], self.n_end, const(self.tile.width)) as (n, _):
            self.panel(n)

    def place(self, n: ir.Value) -> ir.Value:
        """Where the panel from column n on is."""
        b, spec, tile, (_, n0, k0) = self.b, self.spec, self.tile, self.origin
        if spec.packed is not None:
            return packed_block(b, spec, tile, self.args, n, k0, self.k_size)
        if not self.along:
            return self.right
        deep = const(round_up(spec.known[2] or 1, tile.lanes))
        return address(b, self.right, b.mul(b.sub(n, n0), deep), spec.element)

    def panel(self, n: ir.Value) -> ir.Value:
        """The same; it is packed now if it was not before."""
        b, spec, tile, (_, _, k0) = self.b, self.spec, self.tile, self.origin
        place = self.place(n)
        if spec.packed is None and self.pack_right is not None:
            count = minimum(b, const(tile.width), b.sub(self.n_end, n))
            needed = b.icmp_signed("<", count, const(tile.width)) if packs_in_tiles(spec, tile) else I1(1)
            with b.if_then(needed):
                b.call(self.pack_right, [*self.args, self.g, n, count, k0, self.k_size, place])
        return place

    def lines(self, n: ir.Value) -> list[ir.Value]:
        """Whether the first tile packs the panel from column n on, from where, and how far its lines are apart."""
        b, spec, (_, _, k0) = self.b, self.spec, self.origin
        if not packs_in_tiles(spec, self.tile):
            return []
        whole = b.icmp_signed("<=", b.add(n, const(self.tile.width)), self.n_end)
        start, apart = line_of(b, spec, self.args, self.g, n, k0)
        return [whole, start, b.udiv(apart, const(element_bytes(spec.element)))]

    def following(self, n: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(column, k) where the next panel begins."""
        b, (m0, n0, k0) = self.b, self.origin
        beside, deeper = b.add(n, const(self.tile.width)), b.add(k0, self.depth_block)
        last = b.icmp_signed(">=", beside, self.n_end)
        more = b.icmp_signed("<", deeper, self.depth)
        again = b.or_(more, b.icmp_signed("<", b.add(m0, self.row_block), self.row_to))
        column = b.select(last, b.select(again, n0, b.add(n0, self.column_block)), beside)
        return column, b.select(last, b.select(more, deeper, ZERO), k0)

    # ------------------------------------------------------------ a tile

    def one(self, m: ir.Value, panel: _Panel) -> None:
        """The tile at row m."""
        b, spec, tile, (m0, n0, _), n = self.b, self.spec, self.tile, self.origin, panel.column
        place = b.add(b.mul(b.sub(m, m0), self.column_block), b.mul(b.sub(n, n0), const(tile.rows)))
        place = ZERO if spec.stored_at is not None else b.select(self.one_pass, ZERO, place)
        if self.together:
            place = b.add(b.mul(b.sub(m, m0), const(apart(tile))), b.sub(n, n0))
        partial = address(b, self.sums, place, spec.element)
        packs, *lines = panel.lines or [None]
        lines = [] if packs is None else [b.and_(packs, b.icmp_signed("==", m, m0)), *lines]
        given = [*self.args, self.g, m, n, b.sub(self.m_end, m), panel.columns, self.k_size, self.rows_at(m),
                 panel.start, partial, panel.first, panel.last, *self.ahead(m, panel.start, panel.shares)]
        if self.narrow is None:
            self.inner(b, [*given, *lines], panel.apart)
            return
        with b.if_else(b.icmp_signed("<=", panel.columns, const(self.narrow.width)), likely=False) as (at_end, before):
            with at_end:
                self.last(b, given, panel.apart)
            with before:
                self.inner(b, [*given, *lines], panel.apart)

    def known(self, n: ir.Value) -> _Panel:
        """What the tiles of the panel from column n on share."""
        b, spec, (m0, _, k0) = self.b, self.spec, self.origin
        along, start = self.along, self.place(n) if self.along else self.panel(n)
        first = b.icmp_signed("==", k0, ZERO)
        last = b.icmp_signed(">=", b.add(k0, self.depth_block), self.depth)
        apart = row_apart(b, spec, self.args, self.g, m0, n) if stores_plainly(spec) else ZERO
        return _Panel(n, b.sub(self.n_end, n), start, first, last, apart,
                      self.shares((n, ZERO) if along else self.following(n)), [] if along else self.lines(n))

    def shares(self, following: tuple[ir.Value, ir.Value]) -> list[ir.Value]:
        """How many tiles fetch a share of the next panel, if there is one; and where the shares are."""
        b, spec, tile, (n, k) = self.b, self.spec, self.tile, following
        if not fetches(spec, tile):
            return []
        size = minimum(b, self.depth_block, b.sub(self.depth, k))
        count = b.select(b.icmp_signed("<", n, self.column_to), const(sharers(spec, tile)), ZERO)
        if spec.packed is None:
            return [count, *shares_of(b, spec, tile, self.args, self.g, (n, k), size)]
        return [count, *shares_of_packed(b, spec, tile, packed_block(b, spec, tile, self.args, n, k, size), size)]

    def ahead(self, m: ir.Value, panel: ir.Value, shares: list[ir.Value]) -> list[ir.Value]:
        """What the tile at row m fetches of the next panel, if there is one."""
        b, spec, tile, (m0, _, _) = self.b, self.spec, self.tile, self.origin
        if not shares:
            return []
        count, start, step, apart, between = shares
        number = b.udiv(b.sub(m, m0), const(tile.rows))
        share = [b.gep(start, [b.mul(number, between)], source_etype=ir.IntType(8)), step, apart]
        some = b.icmp_signed("<", number, count)
        return [b.select(some, *both) for both in zip(share, nothing(spec, tile, panel), strict=True)]
