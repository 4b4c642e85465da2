"""Products of bfloat16 as pairs, and those in the matrix registers of a processor that has them (AMX).

Two neighbours along depth are a pair, seen as one element of 32 bits by everything around: depth counts pairs, packing
copies and transposes them as it does with float32.  Where neighbours in memory are columns (or rows), two lines are
joined like a zip; float32 in memory is rounded on the way.  Where vectors of pairs are multiplied, tiles are those of
`register_tile`.  Matrix registers hold 16 x 16 sums in float32 and multiply chunks of 16 pairs: where depth ends within
one the rest is zeros.  A tile has four registers of sums, two of left rows and two of right columns.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import (
    PAIR_LANES,
    Args,
    GemmSpec,
    Index,
    Tile,
    in_registers,
    is_ragged,
    left_layout,
    whole_tiles,
)
from tenon.backends.cpu.contraction.ir_helpers import (
    I1,
    I32,
    I64,
    ONE,
    POINTER,
    ZERO,
    address,
    between,
    ceil_div,
    const,
    load_vector,
    loop,
    masked_load,
    minimum,
    prefetch,
    runs,
    store_vector,
    transpose,
    unravel,
    zero,
)
from tenon.backends.cpu.contraction.pack_masked_runs import Vector, runs_among
from tenon.backends.cpu.contraction.panel_prefetch import ahead_types, fetch
from tenon.backends.cpu.contraction.register_tile import finish_tile
from tenon.backends.cpu.contraction.store_bf16 import below, rounded, store_rounded
from tenon.target import LINE_BYTES

if TYPE_CHECKING:
    from tenon.backends.cpu.contraction.packing import Pack

I8, I16 = ir.IntType(8), ir.IntType(16)
SUMS, LEFT, RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)        # numbers of registers
PREFETCHED_PAIRS = 16   # pairs of lines after the one that is packed are fetched
INTERLEAVED = [k // 2 + PAIR_LANES * (k % 2) for k in range(2 * PAIR_LANES)]  # one number of each line after the other
ROW_BYTES = 64                                          # of each of the 16 rows of a register


def configure(b: ir.IRBuilder) -> None:
    """All eight registers have 16 rows of 64 bytes, on this thread, until `release`."""
    name = "matrix_registers"
    shape = b.module.globals.get(name)
    if shape is None:
        words = [1] + [0] * 15 + [ROW_BYTES, 0] * 8 + [0] * 16 + [PAIR_LANES] * 8 + [0] * 8
        shape = ir.GlobalVariable(b.module, ir.ArrayType(I8, LINE_BYTES), name)
        shape.linkage, shape.global_constant, shape.align = "internal", True, LINE_BYTES
        shape.initializer = ir.Constant(shape.value_type, bytearray(words))
    _call(b, "ldtilecfg", [shape])


def release(b: ir.IRBuilder) -> None:
    """The registers are empty again, and cost nothing when threads take turns."""
    _call(b, "tilerelease", [])


def emit_pair_tile(module: ir.Module, name: str, spec: GemmSpec, tile: Tile) -> ir.Function:
    """What `emit_tile` makes, for pairs: sums wait in `sums`, and the epilogue reads them there."""
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 6, *[POINTER] * 3, I1, I1,
                                           *ahead_types(spec, tile)])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, m, n, rows, columns, depth, left, right, sums, first, last, *ahead = values
    b = ir.IRBuilder(function.append_basic_block("entry"))
    places = [(register, address(b, sums, const(16 * (i * tile.width + v)), spec.element))
              for register, (i, v) in zip(SUMS, ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True)]
    apart = const(4 * tile.width)
    batch = unravel(b, g, [size(b, args) for size in spec.batch])
    with b.if_then(last):
        _fetch_next(b, spec, tile, args, batch, m, n)
    with b.if_else(first) as (begin, go_on):
        with begin:
            for register in SUMS:
                _call(b, "tilezero", [_number(register)])
        with go_on:
            for register, place in places:
                _call(b, "tileloadd64", [_number(register), place, apart])
    _add_products(b, spec, tile, depth, left, right, ahead)
    for register, place in places:
        _call(b, "tilestored64", [_number(register), place, apart])
    assert spec.finish is not None
    with b.if_then(last):
        rows = minimum(b, rows, const(tile.rows))
        if spec.rounds is not None and spec.target.has("avx512bf16"):
            columns = minimum(b, columns, const(tile.width))
            store_rounded(b, spec, tile, args, batch, (m, n), (rows, columns), sums)
        else:
            finish_tile(b, spec, tile, args, batch, (m, n), (rows, columns), sums, whole_tiles(spec, tile)[1])
    b.ret_void()
    return function


def _fetch_next(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, batch: Index, m: ir.Value,
                n: ir.Value) -> None:
    """Ask for what the epilogue of the tile below will touch: one of a shallow product takes less time than memory."""
    if not spec.straight:
        return
    for where in (*spec.near, *spec.written):
        start, second = (where(b, args, batch, b.add(m, const(tile.rows + i)), n) for i in (0, 1))
        apart = b.sub(b.ptrtoint(second, I64), b.ptrtoint(start, I64))
        with loop(b, ZERO, const(tile.rows), short=True) as (i, _):
            prefetch(b, b.gep(start, [b.mul(i, apart)], source_etype=I8), 2)


def _add_products(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, depth: ir.Value, left: ir.Value, right: ir.Value,
                  ahead: Sequence[ir.Value]) -> None:
    """Add the products over a block of depth, 16 pairs at a time, to the sums."""
    _, row_apart, chunk_apart, _ = left_layout(spec, tile)
    with loop(b, ZERO, depth, const(PAIR_LANES)) as (k, _):
        chunk = b.udiv(k, const(PAIR_LANES))
        fetch(b, spec, tile, ahead, chunk)
        panel = address(b, right, b.mul(k, const(tile.width)), spec.element)
        row = address(b, left, b.mul(chunk, const(chunk_apart)), spec.element)
        for v, register in enumerate(RIGHT):
            _call(b, "tileloadd64", [_number(register), address(b, panel, const(16 * v), spec.element),
                                     const(4 * tile.width)])
        for i, register in enumerate(LEFT):
            _call(b, "tileloadd64", [_number(register), address(b, row, const(16 * i * row_apart), spec.element),
                                     const(4 * row_apart)])
            for v, other in enumerate(RIGHT):
                _call(b, "tdpbf16ps", [_number(SUMS[2 * i + v]), _number(register), _number(other)])


# ---------------------------------------------------------------- packing

def pack_pairs(pack: Pack, side: str) -> None:
    """Pairs that have to be put together, of two lines or of float32; or that end within a chunk."""
    if pack.operand.zipped is not None and not pack.operand.flat:
        zipped_pieces(pack)
    elif pack.operand.zipped is not None:
        (zipped_rows if side == "left" and in_registers(pack.spec) else zipped_lines)(pack)
    else:
        (rows_of_pairs if side == "left" else squares_of_pairs)(pack)


def zipped_lines(pack: Pack) -> None:
    """Lines of right, or of left: 16 columns or rows at a time, of two lines each."""
    b = pack.b
    with runs(b, pack.k0, pack.depth, pack.depth_sizes) as (k, start, length), loop(b, ZERO, length) as (step, _):
        line, at = _where(pack, ZERO, (*start[:-1], b.add(start[-1], step))), b.add(k, step)
        _fetch_lines(pack, line)
        for lane in range(0, pack.width, PAIR_LANES):
            value = _first_lanes(b, _zipped(pack, line, lane, at), pack.width - lane)
            store_vector(b, value, pack.slot(at, const(lane)))
    if in_registers(pack.spec) and is_ragged(pack.spec):
        _clear_lines(pack)


def zipped_pieces(pack: Pack) -> None:
    """Lines of right that lie in several runs of memory: of a panel within one of them as above, or in pieces."""
    b, run = pack.b, pack.outer_sizes[-1]
    room = b.sub(run, b.urem(pack.first, run))
    with b.if_else(b.icmp_signed("<=", pack.count, room), likely=True) as (whole, pieces):
        with whole:
            zipped_lines(pack)
        with pieces:
            _in_pieces(pack, runs_among(PAIR_LANES, run.constant) or 1)


def _in_pieces(pack: Pack, count: int) -> None:
    """Every 16 columns are at most `count` runs of each of the two lines, one masked into the other."""
    b = pack.b
    vectors = [Vector(pack, const(lane), count) for lane in range(0, pack.width, PAIR_LANES)]
    with runs(b, pack.k0, pack.depth, pack.depth_sizes) as (k, start, length), loop(b, ZERO, length) as (step, _):
        index, at = (*start[:-1], b.add(start[-1], step)), b.add(k, step)
        for vector in vectors:
            store_vector(b, _pieces(pack, vector, index, at), pack.slot(at, vector.lane))
    if in_registers(pack.spec) and is_ragged(pack.spec):
        _clear_lines(pack)


def _pieces(pack: Pack, vector: Vector, index: Index, k: ir.Value) -> ir.Value:
    """The pairs of 16 columns whose runs are known."""
    b, x, left, halves = pack.b, pack.operand, _numbers_from(pack, k), []
    assert x.pointer is not None and x.zipped is not None
    kind = ir.FloatType() if x.rounded else I16
    for number, offset in enumerate((0, x.zipped)):
        value = zero(ir.VectorType(kind, PAIR_LANES))
        for start, end, outer in zip(vector.starts, vector.ends, vector.outers, strict=True):
            end = b.select(b.icmp_signed(">", left, const(number)), end, ZERO) if is_ragged(pack.spec) else end
            mask = between(b, b.trunc(start, I32), b.trunc(end, I32), PAIR_LANES)
            where = address(b, x.pointer(b, pack.args, pack.g, outer, index), b.sub(const(offset), start), kind)
            value = masked_load(b, where, mask, value)
        halves.append(value)
    return _paired(pack, halves, INTERLEAVED)


def zipped_rows(pack: Pack) -> None:
    """Rows of left, which lie along lines: squares of 16 rows and 16 pairs, transposed."""
    b = pack.b
    with loop(b, ZERO, pack.depth, const(PAIR_LANES), short=True) as (k, _):
        lines = [(_where(pack, ZERO, unravel(b, b.add(b.add(pack.k0, k), const(i)), pack.depth_sizes)),
                  b.add(k, const(i))) for i in range(PAIR_LANES)]
        for line, _ in lines:
            _fetch_lines(pack, line)
        for group in range(0, pack.width, PAIR_LANES):
            for i, row in enumerate(transpose(b, [_zipped(pack, line, group, at) for line, at in lines])):
                store_vector(b, row, _row_at(pack, const(group + i), k))


def rows_of_pairs(pack: Pack) -> None:
    """Rows of left, which lie along depth: 32 numbers at a time."""
    b, start = pack.b, unravel(pack.b, pack.k0, pack.depth_sizes)
    with loop(b, ZERO, const(pack.width), short=True) as (i, _):
        row = _where(pack, i, start)
        with loop(b, ZERO, pack.depth, const(PAIR_LANES), short=True) as (k, _):
            store_vector(b, _along(pack, row, k), _row_at(pack, i, k))


def squares_of_pairs(pack: Pack) -> None:
    """Columns of right, which lie along depth: squares of 16 columns and 16 pairs, transposed."""
    b, start = pack.b, unravel(pack.b, pack.k0, pack.depth_sizes)
    with loop(b, ZERO, const(pack.width), const(PAIR_LANES), short=True) as (group, _):
        rows = [_where(pack, b.add(group, const(i)), start) for i in range(PAIR_LANES)]
        with loop(b, ZERO, pack.depth, const(PAIR_LANES), short=True) as (k, _):
            for step, line in enumerate(transpose(b, [_along(pack, row, k) for row in rows])):
                store_vector(b, line, pack.slot(b.add(k, const(step)), group))


def _fetch_lines(pack: Pack, line: ir.Value) -> None:
    """Ask for the two lines of a pair to come, as if all were equally far apart."""
    zipped, kind = pack.operand.zipped, ir.FloatType() if pack.operand.rounded else I16
    assert zipped is not None
    for far in (2 * PREFETCHED_PAIRS, 2 * PREFETCHED_PAIRS + 1):
        prefetch(pack.b, address(pack.b, line, const(far * zipped), kind))


def _clear_lines(pack: Pack) -> None:
    """Zero lines of right, from the last of depth to the end of its chunk."""
    b, chunk = pack.b, const(PAIR_LANES)
    end = b.mul(ceil_div(b, pack.depth, chunk), chunk)
    with loop(b, pack.depth, end, short=True) as (k, _):
        for lane in range(0, pack.width, PAIR_LANES):
            store_vector(b, zero(ir.VectorType(pack.spec.element, PAIR_LANES)), pack.slot(k, const(lane)))


def _where(pack: Pack, outer: ir.Value, k: Index) -> ir.Value:
    """The address of a row (past the end that of the last, to no effect) or column at depth k."""
    b, pointer = pack.b, pack.operand.pointer
    assert pointer is not None
    place = b.add(pack.first, minimum(b, outer, b.sub(pack.count, ONE)))
    return pointer(b, pack.args, pack.g, unravel(b, place, pack.outer_sizes), k)


def _row_at(pack: Pack, i: ir.Value, k: ir.Value) -> ir.Value:
    """Where 16 pairs of a row of left are packed to."""
    b, (_, row_apart, chunk_apart, _) = pack.b, left_layout(pack.spec, pack.tile)
    chunk = b.mul(b.udiv(k, const(PAIR_LANES)), const(chunk_apart))
    return address(b, pack.panel, b.add(b.mul(i, const(row_apart)), chunk), pack.spec.element)


def _zipped(pack: Pack, line: ir.Value, lane: int, k: ir.Value) -> ir.Value:
    """The pairs of 16 neighbours of a line, from `lane` on, and those of the next line; as elements of 32 bits.

    Of a line beyond depth there is nothing, and nothing beside the last one where depth is odd.
    """
    b, operand, left = pack.b, pack.operand, _numbers_from(pack, k)
    assert operand.zipped is not None
    kind = ir.FloatType() if operand.rounded else I16
    halves = []
    for number, offset in enumerate((0, operand.zipped)):
        some = b.icmp_signed(">", left, const(number)) if is_ragged(pack.spec) else None
        count = pack.count if some is None else b.select(some, pack.count, ZERO)
        halves.append(_first(b, address(b, line, const(lane + offset), kind), kind, PAIR_LANES, count, lane))
    return _paired(pack, halves, INTERLEAVED)


def _first_lanes(b: ir.IRBuilder, x: ir.Value, count: int) -> ir.Value:
    """A vector, or its first lanes where there shall be less."""
    lanes = ir.Constant(ir.VectorType(I32, min(count, x.type.count)), [*range(min(count, x.type.count))])
    return x if lanes.type.count == x.type.count else b.shuffle_vector(x, x, lanes)


def _along(pack: Pack, row: ir.Value, k: ir.Value) -> ir.Value:
    """16 pairs of a row, zeros where it has ended."""
    b, operand, left = pack.b, pack.operand, _numbers_from(pack, k)
    narrow, lanes = operand.narrow, PAIR_LANES if operand.rounded else 2 * PAIR_LANES
    kind = narrow.memory if narrow else ir.FloatType() if operand.rounded else I16
    start, found = address(b, row, b.mul(k, const(2)), kind), []
    for lane in range(0, 2 * PAIR_LANES, lanes):
        place = address(b, start, const(lane), kind)
        found.append(_first(b, place, kind, lanes, left, lane) if is_ragged(pack.spec) else
                     load_vector(b, place, kind, lanes))
    if operand.rounded:
        return _paired(pack, [narrow.widen(b, x) for x in found] if narrow else found, list(range(2 * PAIR_LANES)))
    return b.bitcast(found[0], ir.VectorType(pack.spec.element, PAIR_LANES))


def _numbers_from(pack: Pack, k: ir.Value) -> ir.Value:
    """How many numbers there are along depth from pair k of the panel on."""
    b, total = pack.b, pack.spec.known[2]
    left = b.mul(b.sub(pack.depth, k), const(2))
    if not pack.spec.odd or total is None:
        return left
    return b.sub(left, b.zext(b.icmp_signed("==", b.add(pack.k0, pack.depth), const(total)), I64))


def _first(b: ir.IRBuilder, where: ir.Value, kind: ir.Type, lanes: int, count: ir.Value, lane: int) -> ir.Value:
    """A vector of which lane 0 is number `lane` of `count`; zeros behind the last."""
    return masked_load(b, where, below(b, count, lanes, lane), zero(ir.VectorType(kind, lanes)))


def _paired(pack: Pack, halves: Sequence[ir.Value], order: list[int]) -> ir.Value:
    """Two vectors of 16 numbers in this order, as one of 16 elements of 32 bits; float32 is rounded before."""
    b, places = pack.b, ir.Constant(ir.VectorType(I32, 2 * PAIR_LANES), order)
    if pack.operand.rounded and not in_registers(pack.spec):    # an instruction, whose gain was measured for vectors
        words = rounded(b, halves)
        both = b.shuffle_vector(words, words, places)
    else:
        both = b.shuffle_vector(*([_halves(b, x) for x in halves] if pack.operand.rounded else halves), places)
    return b.bitcast(both, ir.VectorType(ir.FloatType(), PAIR_LANES))


def _halves(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """A vector of float32 rounded to bfloat16, to nearest even; NaN stays NaN."""
    bits = b.bitcast(x, ir.VectorType(I32, PAIR_LANES))

    def number(value: int) -> ir.Constant:
        return ir.Constant(bits.type, [value] * PAIR_LANES)
    odd = b.and_(b.lshr(bits, number(16)), number(1))
    rounded = b.add(bits, b.add(odd, number(0x7FFF)))
    chosen = b.select(b.fcmp_unordered("uno", x, x), b.or_(bits, number(0x400000)), rounded)
    return b.trunc(b.lshr(chosen, number(16)), ir.VectorType(I16, PAIR_LANES))


def _number(register: int) -> ir.Constant:
    return ir.Constant(I8, register)


def _call(b: ir.IRBuilder, name: str, values: Sequence[ir.Value]) -> None:
    name = f"llvm.x86.{name}"
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    b.call(b.module.globals.get(name) or ir.Function(b.module, kind, name), values)
