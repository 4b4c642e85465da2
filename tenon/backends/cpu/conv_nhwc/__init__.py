"""Products of windows (or rows) and constant weights, whose filters are the lanes: a statement of loops -> LLVM IR.

    for each place outside, block of places: copy what its windows cover, where some reach over the edge
        for each panel of filters, tile of the block: all sums, epilogue

`conv_schedule` says how, `halo_copy` copies, `conv_microkernel` computes, `vector_epilogue` is the epilogue; weights
are packed here, a panel after the other, in the order in which tiles read them.  Windows of 3 x 3 may be computed
otherwise (`winograd_plan`, whose loops `winograd_nhwc` writes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import ONE, ZERO, address, ceil_div, const, loop, maximum, minimum
from tenon.backends.cpu.contraction.small_gemm import tile_start
from tenon.backends.cpu.conv_direct.padded_copy import bind_indices
from tenon.backends.cpu.conv_direct.work_share import Task
from tenon.backends.cpu.conv_nhwc.conv_microkernel import ConvTiles, know_run
from tenon.backends.cpu.conv_nhwc.conv_schedule import ConvSchedule as DirectPlan
from tenon.backends.cpu.conv_nhwc.conv_schedule import ConvTile, direct_plan_of
from tenon.backends.cpu.conv_nhwc.winograd_nhwc import Winograd, transform_taps
from tenon.backends.cpu.conv_nhwc.winograd_plan import WinogradPlan, winograd_plan_of
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.scalar_codegen import POINTER, register
from tenon.llvm.work_partition import SHARE
from tenon.loops.expressions import Buffer
from tenon.loops.loop_ir import Contraction
from tenon.loops.refusal import Refusal
from tenon.target import LINE_BYTES, Target, round_up

Plan = DirectPlan | WinogradPlan
Range = tuple[ir.Value, ir.Value]

__all__ = ["ConvSchedule", "WinogradPlan", "emit_convolution", "emit_panels", "plan_of", "scratch_of"]


def plan_of(statement: Contraction, machine: Target) -> Plan | Refusal:
    """How to compute a product with its right factor packed before; a refusal where another does as well."""
    plan = direct_plan_of(statement, machine)
    return plan and (winograd_plan_of(statement, machine) or plan)


def scratch_of(plan: Plan) -> int:
    """Bytes of scratch memory that each thread needs."""
    return plan.scratch if isinstance(plan, WinogradPlan) else sum(_parts(plan)) + LINE_BYTES


def _parts(plan: DirectPlan) -> tuple[int, int]:
    """Bytes of the copy, and of the sums of a tile."""
    copy = plan.border.elements(plan.block // plan.tiles_beside * plan.sizes[0]) if plan.border else 0
    sums = plan.tile.rows * plan.tile.places * plan.tile.vectors * plan.lanes
    return round_up(copy * plan.size, LINE_BYTES), round_up(sums * plan.size, LINE_BYTES)


def _function(module: ir.Module, name: str, pointers: int, more: list[ir.Type]) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * pointers + more), name)
    function.attributes.add("nounwind")
    for argument in function.args[:pointers]:
        argument.add_attribute("noalias")
    return function


# ---------------------------------------------------------------- the product

def emit_convolution(module: ir.Module, name: str, plan: Plan, arguments: Mapping[Buffer, int], pointers: int,
                     packed: int) -> ir.Function:
    """void name(pointers..., first, until, threads, scratch); pointer `packed` is what `emit_panels` has packed."""
    function = _function(module, name, pointers, [*SHARE, POINTER])
    values = Values(ir.IRBuilder(function.append_basic_block("entry")),
                    {x: function.args[k] for x, k in arguments.items()}, {})
    task = Task(values, *function.args[pointers:])
    if isinstance(plan, WinogradPlan):
        Winograd(plan, task, function.args[packed]).emit()
    else:
        tiles = ConvTiles(module, name, plan, dict(arguments), pointers)
        _Blocks(plan, tiles, task, function.args[:pointers], packed).emit()
    values.b.ret_void()
    return function


class _Blocks:
    """Writes the loops around the tiles."""

    def __init__(self, plan: DirectPlan, tiles: ConvTiles, task: Task, pointers: Sequence[ir.Value],
                 packed: int) -> None:
        self.plan, self.tiles, self.task = plan, tiles, task
        self.values, self.b, self.pointers, self.weights = task.values, task.b, pointers, pointers[packed]
        self.copy, self.sums = task.parts(_parts(plan))
        self.element = register(plan.statement.sum.dtype)
        self.panels: Range = ZERO, const(plan.panels)           # of this thread, in the block at hand

    def emit(self) -> None:
        """This thread's share: block after block, of each some panels."""
        b, plan = self.b, self.plan
        for_blocks, for_panels = self.shared_by_panels() if plan.shares_panels else self.shared_by_blocks()
        with loop(b, *for_blocks) as (number, _):
            block, place = b.urem(number, const(plan.blocks)), b.udiv(number, const(plan.blocks))
            for run in reversed(plan.outside):
                know_run(self.values, run, b.urem(place, const(run.extent)))
                place = b.udiv(place, const(run.extent))
            first = b.mul(block, const(plan.block))
            begin = self.place(0, b.udiv(first, const(plan.tiles_beside)))
            if plan.border:
                places = plan.block // plan.tiles_beside * plan.sizes[0]
                plan.border.emit(self.values, self.copy, begin, places, plan.lanes)
            end = minimum(b, b.add(first, const(plan.block)), const(prod(plan.counts)))
            self.panels = for_panels(number)
            with loop(b, *self.panels, short=True) as (panel, _), loop(b, first, end, short=True) as (tile, _):
                self.tile(panel, tile, b.sub(tile, first), begin)

    def shared_by_panels(self) -> tuple[Range, Callable[[ir.Value], Range]]:
        """All blocks, and for each the panels of this thread, which are about the same: nobody else reads them."""
        b, plan = self.b, self.plan
        blocks = const(plan.all_blocks)
        shares = self.task.share(plan.all_blocks * plan.panels)

        def panels(block: ir.Value) -> Range:
            start, stop = (b.udiv(b.sub(b.add(share, const(plan.all_blocks - 1)), block), blocks) for share in shares)
            return start, stop
        return (ZERO, blocks), panels

    def shared_by_blocks(self) -> tuple[Range, Callable[[ir.Value], Range]]:
        """The blocks of this thread, and for each its panels: all but for the first and the last block."""
        b, plan = self.b, self.plan
        start, stop = (self.task_at(x) for x in self.task.share(plan.all_tiles * plan.panels))
        every = const(plan.panels)

        def panels(block: ir.Value) -> Range:
            before = b.mul(block, every)
            return maximum(b, b.sub(start, before), ZERO), minimum(b, b.sub(stop, before), every)
        return (b.udiv(start, every), ceil_div(b, stop, every)), panels

    def task_at(self, work: ir.Value) -> ir.Value:
        """The number of the panel of a block before which so many tiles come; the last block of a place has fewer."""
        b, plan = self.b, self.plan
        tiles = prod(plan.counts)
        place, work = b.udiv(work, const(tiles * plan.panels)), b.urem(work, const(tiles * plan.panels))
        block, work = b.udiv(work, const(plan.block * plan.panels)), b.urem(work, const(plan.block * plan.panels))
        each = minimum(b, const(plan.block), b.sub(const(tiles), b.mul(block, const(plan.block))))
        panel = b.udiv(b.add(work, b.udiv(each, const(2))), each)
        return b.add(b.mul(b.add(b.mul(place, const(plan.blocks)), block), const(plan.panels)), panel)

    def place(self, axis: int, number: ir.Value) -> ir.Value:
        """Where the tile of this number along an axis begins."""
        return tile_start(self.b, self.plan.axes[axis].extent, self.plan.sizes[axis], number)

    def panel(self, number: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(the first column of a panel, its weights)."""
        b, plan = self.b, self.plan
        column = b.mul(tile_start(b, plan.vectors, plan.tile.vectors, number), const(plan.lanes))
        return column, address(b, self.weights, b.mul(column, const(plan.steps)), self.element)

    def tile(self, panel: ir.Value, tile: ir.Value, number: ir.Value, begin: ir.Value) -> None:
        """Call the tile of a panel; its `number` in the block that begins at the place `begin` of the first axis."""
        b, plan, numbers = self.b, self.plan, list[ir.Value]()
        for count in reversed(plan.counts):
            numbers.insert(0, b.urem(tile, const(count)))
            tile = b.udiv(tile, const(count))
        places = [self.place(axis, n) for axis, n in enumerate(numbers)]
        source, (column, weights) = self.source(places, begin), self.panel(panel)
        ahead = self.ahead(panel, number, weights)
        outside = [self.values.known[run.indices[-1]] for run in plan.outside]
        passed = [*self.pointers, *outside, *places, column, source, weights, ahead, self.sums]
        kinds = [(b, [(1, 1)]), *zip(numbers, plan.parts, strict=True)][-2:]
        self.by_size([*kinds, (panel, plan.panel_parts)], [], passed)

    def by_size(self, kinds: Sequence[tuple[ir.Value, Sequence[tuple[int, int]]]], sizes: list[int],
                passed: Sequence[ir.Value]) -> None:
        """Call the tile of the size that the numbers of its row, its place and its panel have."""
        if not kinds:
            self.b.call(self.tiles.function(ConvTile(*sizes)), passed)
            return
        (number, ((large, parts), *smaller)), *rest = kinds
        if not smaller:
            self.by_size(rest, [*sizes, large], passed)
            return
        with self.b.if_else(self.b.icmp_signed("<", number, const(parts))) as (first, second):
            with first:
                self.by_size(rest, [*sizes, large], passed)
            with second:
                self.by_size(rest, [*sizes, smaller[0][0]], passed)

    def source(self, places: Sequence[ir.Value], begin: ir.Value) -> ir.Value:
        """Where the first element of the window at these places is: in the copy, or in memory."""
        b, plan = self.b, self.plan
        if plan.border is None:
            for run, place in zip(plan.axes, places, strict=True):
                know_run(self.values, run, place)
            self.values.known.update(dict.fromkeys(plan.statement.depth, ZERO))
            return self.values.address(plan.load.buffer, plan.load.offset)
        offset = b.mul(b.sub(places[0], begin), const(plan.axes[0].stride))
        for run, place in zip(plan.axes[1:], places[1:], strict=True):
            offset = b.add(offset, b.mul(place, const(run.stride)))
        return address(b, self.copy, offset, self.element)

    def ahead(self, panel: ir.Value, number: ir.Value, near: ir.Value) -> ir.Value:
        """What a tile of this number in its block fetches of its thread's next panel; near memory if that is done."""
        b, plan = self.b, self.plan
        following = b.add(panel, ONE)
        following = b.select(b.icmp_signed("<", following, self.panels[1]), following, self.panels[0])
        first = b.mul(number, const(plan.fetched * plan.chunks * LINE_BYTES))
        start = b.gep(self.panel(following)[1], [first], source_etype=ir.IntType(8))
        return b.select(b.icmp_signed("<", first, const(plan.panel_bytes)), start, near)


# ---------------------------------------------------------------- its weights

def emit_panels(module: ir.Module, name: str, plan: Plan, arguments: Mapping[Buffer, int], pointers: int,
                packed: int) -> ir.Function:
    """void name(pointers..., first, until, threads): pack a share of the right factor to pointer `packed`."""
    function = _function(module, name, pointers, SHARE)
    values = Values(ir.IRBuilder(function.append_basic_block("entry")),
                    {x: function.args[k] for x, k in arguments.items()}, {})
    first, until, threads = function.args[pointers:]
    task = Task(values, first, until, threads, function.args[packed])
    if isinstance(plan, WinogradPlan):
        transform_taps(plan, task, function.args[packed])
    else:
        _pack_panels(plan, task, function.args[packed])
    values.b.ret_void()
    return function


def _pack_panels(plan: DirectPlan, task: Task, packed: ir.Value) -> None:
    """This thread's panels."""
    b, values = task.b, task.values
    (large, parts), *smaller = plan.panel_parts
    with loop(b, *task.share(plan.panels)) as (panel, _):
        first = tile_start(b, plan.vectors, plan.tile.vectors, panel)
        vectors = b.select(b.icmp_signed("<", panel, const(parts)), const(large),
                           const(smaller[0][0] if smaller else large))
        _pack(plan, values, packed, b.mul(first, const(plan.lanes)), b.mul(vectors, const(plan.lanes)))


def _pack(plan: DirectPlan, values: Values, panels: ir.Value, column: ir.Value, width: ir.Value) -> None:
    """The panel of the columns from `column` on, line after line; behind the last one are zeros."""
    b, statement, element = values.b, plan.statement, register(plan.statement.sum.dtype)
    start = b.mul(column, const(plan.steps))
    with loop(b, ZERO, const(plan.steps), short=True) as (step, _):
        place = step
        for run in reversed(plan.depth):
            bind_indices(values, run.indices, b.urem(place, const(run.extent)))
            place = b.udiv(place, const(run.extent))
        line = b.add(start, b.mul(step, width))
        with loop(b, ZERO, width, short=True) as (lane, _):
            at = b.add(column, lane)
            some = b.icmp_signed("<", at, const(plan.filters))
            values.known[statement.columns[-1]] = b.select(some, at, ZERO)
            value = b.select(some, values.value(statement.right), ir.Constant(element, 0))
            b.store(value, address(b, panels, b.add(line, lane), element))
