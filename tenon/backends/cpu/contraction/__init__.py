"""One template for every product that is summed: matmul, einsum, convolution and its gradients -> LLVM IR.

    function = emit_contraction(module, "matmul", Contraction(...))     # `gemm_spec` says what a contraction is

`gemm_spec` the description, `packing` operands to panels (`pack_masked_runs`, `pack_transposed` two of its ways),
`register_tile` the tile of registers with its `microkernel`, which know where all lies by `microkernel_types` and what
they fetch by `microkernel_prefetch`, `blocked_gemm` the loops around it, in the memory of `scratch`,
`prepacked_operand` the right side that is packed once for many products, `panel_prefetch` what is fetched meanwhile,
`select_schedule` threads and the choice of a schedule, `bf16_dot_products` products of bfloat16, `store_bf16` how they
are rounded, `small_gemm` small products of known sizes, `batch_prefetch` what these fetch of the next one,
`skinny_gemm` those of few columns whose rows lie along depth, `unpacked_gemm` those that are too narrow for either, by
`gemv_axpy` or `gemv_dot`, `epilogue_row_chunks` where those of rows begin along which an epilogue adds up,
`ir_helpers` the IR they are made of.
"""
from tenon.backends.cpu.contraction.epilogue_row_chunks import chunk_of, chunk_start
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Operand, Tile, choose_tile
from tenon.backends.cpu.contraction.prepacked_operand import emit_packing
from tenon.backends.cpu.contraction.select_schedule import (
    emit_contraction,
    packed_size,
    scratch_size,
    tile_of,
    tiles_of,
)
from tenon.backends.cpu.contraction.skinny_gemm import beats_windows

__all__ = ["GemmSpec", "Operand", "Tile", "beats_windows", "chunk_of", "chunk_start", "choose_tile",
           "emit_contraction", "emit_packing", "packed_size", "scratch_size", "tile_of", "tiles_of"]
