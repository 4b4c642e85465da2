"""One register tile: rows x width sums over a block of depth, and what is done with them when depth is finished.

    void tile(arguments..., g, m, n, rows, columns, depth, left, right, sums, first, last, ahead...)

`left` and `right` are packed panels; `sums` keeps partial sums between blocks of depth; `ahead` are runs of memory
(address, lines) that later tiles will read, fetched a line a step while this one is computed.
"""
from llvmlite import ir

from .ahead import LINE, runs_ahead
from .emit import (
    I1,
    I64,
    ONE,
    POINTER,
    ZERO,
    add,
    address,
    const,
    element_bytes,
    load_vector,
    loop,
    minimum,
    multiply_add,
    prefetch,
    splat,
    store_vector,
    unravel,
    zero,
)
from .packing import left_chunk
from .spec import Contraction, Tile


def emit_tile(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    finish = emit_finish(module, f"{name}.finish", spec, tile)
    ahead = [POINTER, I64] * runs_ahead(spec)
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 6, *[POINTER] * 3, I1, I1, *ahead])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    args, values = tuple(function.args[:len(spec.arguments)]), function.args[len(spec.arguments):]
    g, m, n, rows, columns, depth, left, right, sums, first, last, *ahead = values
    right.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    vector = ir.VectorType(spec.element, tile.lanes)
    places = [(i, v) for i in range(tile.rows) for v in range(tile.vectors)]

    def sum_at(i: int, v: int) -> ir.Value:
        return address(b, sums, const(i * tile.width + v * tile.lanes), spec.element)

    with b.if_then(b.not_(first)):                                     # they are needed when the loop is done
        for line in range(0, len(places) * tile.lanes * element_bytes(spec.element), 64):
            prefetch(b, b.gep(sums, [const(line)], source_etype=ir.IntType(8)))
    chunk = const(tile.lanes)
    with loop(b, ZERO, depth, chunk, [zero(vector)] * len(places)) as (k0, state):
        for start, lines in zip(ahead[::2], ahead[1::2], strict=True):
            line = minimum(b, b.udiv(k0, chunk), lines)
            prefetch(b, b.gep(start, [b.mul(line, const(LINE))], source_etype=ir.IntType(8)), 2)
        panel = address(b, right, b.mul(k0, const(tile.width)), spec.element)
        first_row, row_apart, step_apart = left_chunk(b, spec, tile, left, k0)
        with loop(b, ZERO, minimum(b, b.sub(depth, k0), chunk), carried=state, short=True) as (k, sums_now):
            line = address(b, panel, b.mul(k, const(tile.width)), spec.element)
            factors = [load_vector(b, address(b, line, const(v * tile.lanes), spec.element), spec.element, tile.lanes)
                       for v in range(tile.vectors)]
            start = address(b, first_row, b.mul(k, const(step_apart)), spec.element)
            for i in range(tile.rows):
                one = b.load(address(b, start, const(i * row_apart), spec.element), typ=spec.element)
                factor = splat(b, one, tile.lanes)
                for v in range(tile.vectors):
                    place = i * tile.vectors + v
                    sums_now[place] = multiply_add(b, factor, factors[v], sums_now[place])
        state[:] = sums_now

    alone = b.block
    with b.if_then(b.not_(first)):
        joined = [add(b, value, load_vector(b, sum_at(i, v), spec.element, tile.lanes))
                  for (i, v), value in zip(places, state, strict=True)]
        together = b.block
    for place, value in enumerate(joined):
        total = b.phi(vector)
        total.add_incoming(state[place], alone)
        total.add_incoming(value, together)
        state[place] = total

    whole = b.and_(b.icmp_signed(">=", rows, const(tile.rows)), b.icmp_signed(">=", columns, const(tile.width)))
    if spec.store_run is not None:
        room = b.sub(spec.store_run(b, args), b.urem(n, spec.store_run(b, args)))
        whole = b.and_(whole, b.icmp_signed(">=", room, const(tile.width)))
    with b.if_else(b.and_(whole, last), likely=True) as (direct, by_memory):
        with direct:
            batch = unravel(b, g, [size(b, args) for size in spec.batch])
            for (i, v), value in zip(places, state, strict=True):
                spec.store(b, args, batch, b.add(m, const(i)), b.add(n, const(v * tile.lanes)), value, tile.lanes)
        with by_memory:
            for (i, v), value in zip(places, state, strict=True):
                store_vector(b, value, sum_at(i, v))
            with b.if_then(last):
                b.call(finish, [*args, g, m, n, rows, columns, sums])
    b.ret_void()
    return function


def emit_finish(module: ir.Module, name: str, spec: Contraction, tile: Tile) -> ir.Function:
    """void finish(arguments..., g, m, n, rows, columns, sums): the epilogue of a tile that has an edge, from memory."""
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *[I64] * 5, POINTER])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    args = tuple(function.args[:len(spec.arguments)])
    g, m, n, rows, columns, sums = function.args[len(spec.arguments):]
    sums.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, lanes = unravel(b, g, [size(b, args) for size in spec.batch]), const(tile.lanes)
    rows, columns = minimum(b, rows, const(tile.rows)), minimum(b, columns, const(tile.width))
    with loop(b, ZERO, rows, short=True) as (i, _), loop(b, ZERO, columns, lanes, short=True) as (j, _):
        row, column = b.add(m, i), b.add(n, j)
        where = address(b, sums, b.add(b.mul(i, const(tile.width)), j), spec.element)
        left = minimum(b, b.sub(columns, j), lanes)
        whole = b.icmp_signed("==", left, lanes)
        if spec.store_run is not None:
            room = b.sub(spec.store_run(b, args), b.urem(column, spec.store_run(b, args)))
            whole = b.and_(whole, b.icmp_signed(">=", room, lanes))
        with b.if_else(whole) as (together, apart):
            with together:
                spec.store(b, args, batch, row, column, load_vector(b, where, spec.element, tile.lanes), tile.lanes)
            with apart, loop(b, ZERO, left, ONE, short=True) as (step, _):
                value = b.load(address(b, where, step, spec.element), typ=spec.element)
                spec.store(b, args, batch, row, b.add(column, step), value, 1)
    b.ret_void()
    return function
