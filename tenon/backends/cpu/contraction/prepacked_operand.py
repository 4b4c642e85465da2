"""The right operand, packed ahead of time: the kernel that packs it, and the addresses of its panels.

    void name(arguments..., i32 first, i32 until, i32 threads)

Panels of a block of depth stand side by side, and blocks one behind the other.
"""
from __future__ import annotations

from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Tile, blocks_tile, extent
from tenon.backends.cpu.contraction.ir_helpers import ZERO, address, balanced, ceil_div, const, loop, minimum
from tenon.backends.cpu.contraction.packing import emit_pack
from tenon.backends.cpu.contraction.panel_prefetch import spread
from tenon.llvm.work_partition import SHARE, WorkShare
from tenon.target import LINE_BYTES


def emit_packing(module: ir.Module, name: str, spec: GemmSpec, tile: Tile | None = None) -> ir.Function:
    """The kernel, every thread of which packs its share of right, which is no batch."""
    tile = tile or blocks_tile(spec)
    pack = emit_pack(module, f"{name}.pack_right", spec, tile, "right")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*spec.arguments, *SHARE]), name)
    args, given = tuple(function.args[:-3]), function.args[-3:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    columns, depth = extent(b, args, spec.columns), extent(b, args, spec.depth)
    panels, width = ceil_div(b, columns, const(tile.width)), const(tile.width)
    start, stop = WorkShare(b, *given).of(panels)
    first, end = b.mul(start, width), minimum(b, b.mul(stop, width), columns)
    depth_block = balanced(b, depth, const(tile.depth), tile.lanes)
    with loop(b, ZERO, depth, depth_block) as (k, _), loop(b, first, end, width) as (n, _):
        size = minimum(b, depth_block, b.sub(depth, k))
        b.call(pack, [*args, ZERO, n, minimum(b, width, b.sub(end, n)), k, size,
                      packed_block(b, spec, tile, args, n, k, size)])
    b.ret_void()
    return function


def packed_block(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, args: Args, n: ir.Value, k: ir.Value,
                 k_size: ir.Value) -> ir.Value:
    """Where the panels from column n, depth k on are in what `emit_packing` has packed."""
    assert spec.packed is not None
    width = const(tile.width)
    padded = b.mul(ceil_div(b, extent(b, args, spec.columns), width), width)
    if spec.pairs:
        k_size = b.mul(ceil_div(b, k_size, const(tile.lanes)), const(tile.lanes))
    return address(b, args[spec.packed], b.add(b.mul(k, padded), b.mul(n, k_size)), spec.element)


def shares_of_packed(b: ir.IRBuilder, spec: GemmSpec, tile: Tile, panel: ir.Value,
                     depth: ir.Value) -> list[ir.Value]:
    """What tiles fetch of a panel that is `depth` deep, as `shares_of` says it."""
    step = const(LINE_BYTES * spread(spec, tile))
    return [panel, step, const(LINE_BYTES), b.mul(b.udiv(depth, const(tile.lanes)), step)]
