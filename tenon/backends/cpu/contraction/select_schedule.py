"""A contraction -> the function of it: which schedule computes the rectangles that a call is to do
(`thread_partition`).

Where a sum is cut into blocks of depth depends on sizes only, and every element is summed by the same steps wherever
its tile lies, so that any number of threads gives the same bits.
"""
from llvmlite import ir

from tenon.backends.cpu.contraction.block_epilogue import with_waiting
from tenon.backends.cpu.contraction.blocked_gemm import emit_packed
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile, blocks_tile, choose_tiles, extent, in_registers
from tenon.backends.cpu.contraction.ir_helpers import POINTER, ZERO, const, element_bytes
from tenon.backends.cpu.contraction.scratch import scratch_parts
from tenon.backends.cpu.contraction.skinny_gemm import emit_thin, thin_scratch, thin_tile
from tenon.backends.cpu.contraction.small_gemm import direct_scratch, direct_tile, emit_direct
from tenon.backends.cpu.contraction.thread_partition import Sizes, each_region
from tenon.backends.cpu.contraction.unpacked_gemm import emit_unpacked, stays_unpacked
from tenon.llvm.work_partition import SHARE, WorkShare
from tenon.records import replace
from tenon.target import LINE_BYTES, round_up

MAX_TILES = 3           # of blocks, among which it may be measured which is the fastest


def emit_contraction(module: ir.Module, name: str, spec: GemmSpec, tile: Tile | None = None) -> ir.Function:
    """void name(arguments..., i32 first, i32 until, i32 threads, ptr scratch): its share (`shares`).  scratch:
    scratch_size(spec) bytes a thread."""
    tile = with_waiting(spec, tile or tile_of(spec))
    kind = ir.FunctionType(ir.VoidType(), [*spec.arguments, *SHARE, POINTER])
    function = ir.Function(module, kind, name)
    args, (*given, scratch) = tuple(function.args[:-4]), function.args[-4:]
    b = ir.IRBuilder(function.append_basic_block("entry"))
    batch, rows, columns, depth = (extent(b, args, axis) for axis in (spec.batch, spec.rows, spec.columns, spec.depth))
    blocks = spec.packed is None and tile.schedule == "blocks" and not spec.pairs
    plain = blocks and stays_unpacked(b, spec, rows, columns, depth)
    some = b.icmp_signed(">", b.mul(rows, columns), ZERO)

    def schedule(region: list[ir.Value], unpacked: bool) -> None:
        """The region by one of the two schedules, which is emitted where it may be needed."""
        if tile.schedule == "runs":
            b.call(emit_thin(module, name, spec, tile), [*region, scratch])
        elif tile.schedule != "blocks":
            b.call(emit_direct(module, name, spec, tile), [*region, scratch])
        elif unpacked:
            b.call(emit_unpacked(module, name, spec, tile), region)
        else:
            b.call(emit_packed(module, name, spec, tile), [*region, scratch])

    with b.if_then(some), each_region(b, spec, tile, WorkShare(b, *given), Sizes(batch, rows, columns)) as found:
        region = [*args, *found]
        if isinstance(plain, bool):
            schedule(region, plain)
        else:
            with b.if_else(plain) as (simple, blocked):
                with simple:
                    schedule(region, True)
                with blocked:
                    schedule(region, False)
    b.ret_void()
    return function


def scratch_size(spec: GemmSpec, tile: Tile | None = None) -> int:
    """Bytes of scratch that each thread hands to the emitted function, at any alignment."""
    tile = with_waiting(spec, tile or tile_of(spec))
    if tile.schedule == "runs":
        return thin_scratch(spec, tile)
    return sum(scratch_parts(spec, tile)) + LINE_BYTES if tile.schedule == "blocks" else direct_scratch(spec, tile)


def tile_of(spec: GemmSpec) -> Tile:
    """The tile of the schedule that suits the product best."""
    return thin_tile(spec) or direct_tile(spec) or blocks_tile(spec)


def tiles_of(spec: GemmSpec) -> list[Tile]:
    """The tiles of all schedules that claim the product, the one that suits it best by the model first."""
    if in_registers(spec):
        return [blocks_tile(spec)]
    thin, direct = thin_tile(spec), direct_tile(spec)
    found = [thin] if thin else []
    found += [direct, replace(direct, schedule="panels")] if direct else []
    return [*dict.fromkeys((*found, *choose_tiles(spec.element, MAX_TILES, spec.target, spec.known)))]


def packed_size(spec: GemmSpec, tile: Tile | None = None) -> int | None:
    """Bytes of all of right when it is packed; None where they are not known, or packing is of no use."""
    tile = tile or blocks_tile(spec)
    rows, columns, depth = spec.known
    if rows is None or columns is None or depth is None or spec.batch or \
            thin_tile(replace(spec, chunks=0)):
        return None
    b = ir.IRBuilder()
    if not spec.pairs and stays_unpacked(b, spec, const(rows), const(columns), const(depth), once=True) is not False:
        return None
    deep = round_up(depth, tile.lanes) if spec.pairs else depth
    return round_up(columns, tile.width) * deep * element_bytes(spec.element)
