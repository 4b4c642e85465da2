"""One template for every product that is summed: matmul, einsum, convolution and its gradients -> LLVM IR.

    function = emit_contraction(module, "matmul", Contraction(...))     # spec.py says what a contraction is

`spec` the description, `packing` operands to panels (`packing_pieces`, `packing_squares` two of its ways), `tiles` the
register tile with its `sums`, which know where all lies by `shape` and what they fetch by `meanwhile`, `panels` the
loops around it, in the memory of `scratch`, `packed` the right side that is packed once for many products, `ahead` what
is fetched meanwhile, `blocking` threads and the choice of a schedule, `pairs` products of bfloat16, which may be
`rounded` as they are stored, `direct` small products of known sizes, which fetch the `following` one, `thin` those of
few columns whose rows lie along depth, `unpacked` those that are too narrow for either, by `lines` or `dots`, `chunks`
where those of rows begin along which an epilogue adds up, `emit` the IR they are made of; `dense` worked examples.
"""
from .blocking import emit_contraction, packed_size, scratch_size, tile_of, tiles_of
from .chunks import chunk_of, chunk_start
from .packed import emit_packing
from .spec import Contraction, Operand, Tile, choose_tile
from .thin import beats_windows

__all__ = ["Contraction", "Operand", "Tile", "beats_windows", "chunk_of", "chunk_start", "choose_tile",
           "emit_contraction", "emit_packing", "packed_size", "scratch_size", "tile_of", "tiles_of"]
