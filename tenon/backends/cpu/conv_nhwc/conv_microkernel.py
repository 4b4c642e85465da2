"""One tile: the sums of some places and vectors of filters over all of depth, and the epilogue.

    void tile(pointers..., places..., column, source, panel, ahead, sums)

`source` is where the first element of the tile's first window is, `panel` the weights of its filters; `ahead` is what
is fetched meanwhile, a part of the next panel.  Sums stay in registers, and only an epilogue that has no vector
instructions finds them in memory, at `sums`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import (
    ZERO,
    State,
    address,
    between,
    const,
    load_vector,
    loop,
    minimum,
    multiply_add,
    prefetch,
    splat,
    store_vector,
    zero,
)
from tenon.backends.cpu.conv_nhwc.conv_schedule import ConvSchedule, ConvTile, IndexRun
from tenon.backends.cpu.conv_nhwc.vector_epilogue import Lanes, is_of_vectors
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import I32, I64, POINTER, register
from tenon.loops.affine import affine
from tenon.loops.expressions import Buffer, Index, Load
from tenon.loops.loop_ir import Store, roots
from tenon.loops.traversal import walk
from tenon.target import LINE_BYTES


class ConvTiles:
    """The functions of a plan's tiles, each emitted when it is first asked for."""

    def __init__(self, module: ir.Module, name: str, plan: ConvSchedule, arguments: dict[Buffer, int],
                 pointers: int) -> None:
        self.module, self.name, self.plan = module, name, plan
        self.arguments, self.pointers = arguments, pointers
        self.functions: dict[ConvTile, ir.Function] = {}
        self.rest: ir.Function | None = None

    def function(self, tile: ConvTile) -> ir.Function:
        """The function of tiles of this size."""
        if tile not in self.functions:
            name = f"{self.name}.tile_{tile.rows}_{tile.places}_{tile.vectors}"
            function = self._declared(name, [POINTER] * 4)
            self.functions[tile] = function
            _ConvTile(self, tile, function).emit()
        return self.functions[tile]

    def finishing(self) -> ir.Function:
        """void rest(pointers..., places..., column, rows, places, columns, sums): the epilogue, in plain loops."""
        if self.rest is None:
            self.rest = self._declared(f"{self.name}.finish", [I64] * 3 + [POINTER])
            self._finish(self.rest)
        return self.rest

    def _declared(self, name: str, more: list[ir.Type]) -> ir.Function:
        axes = len(self.plan.outside) + len(self.plan.axes)
        kinds = [POINTER] * self.pointers + [I64] * (axes + 1) + more
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        for argument in (*function.args[:self.pointers], function.args[-1]):
            argument.add_attribute("noalias")
        return function

    def values(self, function: ir.Function) -> Values:
        """Values that know the places and the column in the function's arguments."""
        b = ir.IRBuilder(function.append_basic_block("entry"))
        plan, values = self.plan, Values(b, {x: function.args[k] for x, k in self.arguments.items()}, {})
        runs = (*plan.outside, *plan.axes)
        for run, place in zip(runs, function.args[self.pointers:], strict=False):
            know_run(values, run, place)
        values.known[plan.statement.columns[-1]] = function.args[self.pointers + len(runs)]
        return values

    def _finish(self, function: ir.Function) -> None:
        values, plan = self.values(function), self.plan
        b, statement, element = values.b, plan.statement, register(plan.statement.sum.dtype)
        rows, places, columns, sums = function.args[-4:]
        first = {run.indices[-1]: values.known[run.indices[-1]] for run in plan.axes[-2:]}
        column = statement.columns[-1]
        begin = values.known[column]
        with loop(b, ZERO, rows) as (i, _), loop(b, ZERO, places) as (j, _), loop(b, ZERO, columns) as (lane, _):
            for (index, start), by in zip(first.items(), (i, j)[2 - len(first):], strict=True):
                values.known[index] = b.add(start, by)
            values.known[column] = b.add(begin, lane, flags=("nsw", "nuw"))
            line = b.add(b.mul(b.add(b.mul(i, places), j), const(plan.tile.vectors * plan.lanes)), lane)
            values.known[statement.sum] = b.load(address(b, sums, line, element), typ=element)
            values.block(statement.epilogue)
        b.ret_void()


def know_run(values: Values, run: IndexRun, place: ir.Value) -> None:
    """Let the indices of a run be this place; several that follow each other are named by the last alone."""
    values.known.update(dict.fromkeys(run.indices[:-1], ZERO))
    values.known[run.indices[-1]] = place


class _ConvTile:
    """Writes the function of one tile."""

    def __init__(self, tiles: ConvTiles, tile: ConvTile, function: ir.Function) -> None:
        self.tiles, self.plan, self.tile, self.function = tiles, tiles.plan, tile, function
        self.values = tiles.values(function)
        self.b = self.values.b
        self.source, self.panel, self.ahead, self.sums = function.args[-4:]
        self.element, self.lanes = register(self.plan.statement.sum.dtype), self.plan.lanes
        self.depth, self.chunk = self.plan.depth, self.plan.chunk
        axes = self.plan.axes[-2:]
        steps = (0, axes[0].stride) if len(axes) == 1 else tuple(run.stride for run in axes)
        self.places = [(i, j) for i in range(tile.rows) for j in range(tile.places)]
        self.each = -(-tile.places // self.plan.panels)     # of the next block's places, for every panel
        self.offsets = [i * steps[0] + j * steps[1] for i, j in self.places]

    def emit(self) -> None:
        """The whole function."""
        sums = [zero(ir.VectorType(self.element, self.lanes))] * (len(self.places) * self.tile.vectors)
        self.touched = list(self.lines_of_epilogue())
        self.next_source = self.source_of_next_block()
        sums = self.added(0, self.source, ZERO, sums)
        if is_of_vectors(self.plan.statement):
            self.finish(sums)
        else:
            self.hand_over(sums)
        self.b.ret_void()

    # ------------------------------------------------------------ sums

    def added(self, axis: int, source: ir.Value, number: ir.Value, sums: State) -> State:
        """The sums with all products from this axis of depth on; `number` counts the places of the axes before."""
        b, run = self.b, self.depth[axis]
        if axis == len(self.depth) - 1:
            return self.along(source, number, sums)
        with loop(b, ZERO, const(run.extent), carried=sums, short=True) as (k, state):
            inner = address(b, source, b.mul(k, const(run.stride)), self.element)
            state[:] = self.added(axis + 1, inner, b.add(b.mul(number, const(run.extent)), k), list(state))
        return state

    def along(self, source: ir.Value, number: ir.Value, sums: State) -> State:
        """The products along the last axis of depth, a chunk of it after the other."""
        b, run = self.b, self.depth[-1]
        width = self.tile.vectors * self.lanes
        panel = address(b, self.panel, b.mul(number, const(run.extent * width)), self.element)
        first = b.mul(number, const(-(-run.extent // self.chunk)))
        with loop(b, ZERO, const(run.extent), const(self.chunk), sums, short=True) as (k0, outer):
            self.fetch(b.add(first, b.udiv(k0, const(self.chunk))))
            end = minimum(b, b.add(k0, const(self.chunk)), const(run.extent))
            if run.extent % self.chunk == 0:
                end = b.add(k0, const(self.chunk))
            with loop(b, k0, end, carried=outer, short=True) as (k, state):
                line = address(b, panel, b.mul(k, const(width)), self.element)
                weights = [load_vector(b, address(b, line, const(v * self.lanes), self.element), self.element,
                                       self.lanes) for v in range(self.tile.vectors)]
                at = address(b, source, b.mul(k, const(run.stride)), self.element)
                for i, offset in enumerate(self.offsets):
                    one = b.load(address(b, at, const(offset), self.element), typ=self.element)
                    factor = splat(b, one, self.lanes)
                    for v, weight in enumerate(weights):
                        place = i * self.tile.vectors + v
                        state[place] = multiply_add(b, factor, weight, state[place])
            outer[:] = state
        return outer

    # ------------------------------------------------------------ what is fetched meanwhile

    def source_of_next_block(self) -> ir.Value:
        """Where the places of the next block are that the tiles of this panel fetch."""
        b, plan = self.b, self.plan
        column = self.values.known[plan.statement.columns[-1]]
        panel = b.udiv(column, const(plan.tile.vectors * self.lanes))
        first = b.mul(panel, const(self.each * plan.axes[-1].stride))
        return address(b, self.source, b.add(first, const(plan.following)), self.element)

    def lines_of_epilogue(self) -> Iterator[tuple[ir.Value, int]]:
        """(where the epilogue of the tile reads or writes first, elements from a place to the next)."""
        statement, along = self.plan.statement, self.plan.axes[-1].indices[-1]
        column = statement.columns[-1]
        reads = dict.fromkeys(x for s in statement.epilogue for root in roots(s) for x in walk(root)
                              if isinstance(x, Load))
        found = [(x.buffer, x.offset) for x in (*reads, *statement.epilogue) if isinstance(x, (Load, Store))]
        for buffer, offset in found if self.plan.has_large_results and self.tile.rows == 1 else []:
            terms = affine(offset).terms
            apart = terms.get(along, 0)
            if terms.get(column, 0) == 1 and isinstance(apart, int) and apart and \
                    buffer.type.dtype is statement.sum.dtype and all(isinstance(x, Index) for x in terms):
                yield self.values.address(buffer, offset), apart

    def fetch(self, chunk: ir.Value) -> None:
        """Fetch the share of this chunk: of the next panel, of the next block's places, of the epilogue."""
        b, plan = self.b, self.plan
        for k in range(plan.fetched):
            line = b.add(b.mul(chunk, const(plan.fetched * LINE_BYTES)), const(k * LINE_BYTES))
            prefetch(b, b.gep(self.ahead, [line], source_etype=ir.IntType(8)), 2)
        for place in range(self.each if plan.following else 0):
            where = b.add(b.mul(chunk, const(self.chunk)), const(place * plan.axes[-1].stride))
            prefetch(b, address(b, self.next_source, where, self.element), 2)
        per = -(-len(self.places) * self.tile.vectors // plan.chunks)
        for (start, apart), k in product(self.touched, range(per)):
            line = b.add(b.mul(chunk, const(per)), const(k))
            place, vector = b.udiv(line, const(self.tile.vectors)), b.urem(line, const(self.tile.vectors))
            where = b.add(b.mul(place, const(apart)), b.mul(vector, const(self.lanes)))
            prefetch(b, address(b, start, where, self.element))

    # ------------------------------------------------------------ results

    def finish(self, sums: State) -> None:
        """The epilogue on registers."""
        b, plan, lanes = self.b, self.plan, Lanes(self.values, self.plan.statement, self.lanes)
        column = plan.statement.columns[-1]
        masks: list[ir.Value | None] = [None] * self.tile.vectors
        if plan.filters % self.lanes:
            rest = b.sub(const(plan.filters), self.values.known[column])
            masks = [between(b, ir.Constant(I32, 0), b.trunc(rest, I32), self.lanes, v * self.lanes)
                     for v in range(self.tile.vectors)]
        axes = [run.indices[-1] for run in plan.axes[-2:]]
        for i, place in enumerate(self.places):
            shift = dict(zip(axes, place[2 - len(axes):], strict=True))
            for v, mask in enumerate(masks):
                lanes.finish(sums[i * self.tile.vectors + v], {**shift, column: v * self.lanes}, mask)

    def hand_over(self, sums: State) -> None:
        """Put the sums by, for the epilogue in plain loops."""
        b, plan, width = self.b, self.plan, self.plan.tile.vectors * self.lanes
        for k, value in enumerate(sums):
            i, v = divmod(k, self.tile.vectors)
            store_vector(b, value, address(b, self.sums, const(i * width + v * self.lanes), self.element))
        known = self.function.args[:-4]
        columns = minimum(b, b.sub(const(plan.filters), known[-1]), const(self.tile.vectors * self.lanes))
        b.call(self.tiles.finishing(), [*known, const(self.tile.rows), const(self.tile.places), columns, self.sums])

