"""Kernel -> LLVM IR: one function for each nest, with a barrier between them.

    void kernel_0(ptr buffers, ptr sizes, i32 thread, i32 threads, ptr scratch, ptr status)

`buffers` points to the addresses of kernel.buffers, `sizes` to the i64 values of kernel.sizes.  Every one of the
`threads` threads calls the function with its number and `scratch_size` bytes of its own.  `status` is three i64: where
a checked index fails the function writes (k + 1, the index, the size) for kernel.checks[k], and goes on with index 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tenon.backends.cpu.attention import attention_scratch, emit_attention
from tenon.backends.cpu.loop_codegen import LOCAL_ALIGNMENT, Loops
from tenon.backends.cpu.product_schedules import contraction_scratch, emit_packing_of, emit_product
from tenon.backends.cpu.scalar_codegen import I64, POINTER
from tenon.dims.symbolic_dim import Dim, maximum
from tenon.llvm.target_module import TargetModule
from tenon.llvm.work_partition import SHARE
from tenon.loops.expressions import Buffer, Load
from tenon.loops.loop_ir import Block, BlockedAttention, Contraction, Kernel, Nest, Store, roots, statements
from tenon.loops.traversal import walk
from tenon.records import replace
from tenon.target import Target

SIGNATURE = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, *SHARE, POINTER, POINTER])


def emit_kernel(module: TargetModule, kernel: Kernel, shared: Mapping[int, int] | None = None,
                packed: bool = False) -> list[ir.Function]:
    """The functions of a kernel, to be called in order.

    `shared` says which buffers (by number) have the memory of another one: output -> input.  `packed`: behind the
    inputs stands the right factor of the product, packed already.
    """
    return [_emit_nest(module, kernel, nest, f"{kernel.name}_{number}", shared or {}, packed)
            for number, nest in enumerate(kernel.nests)]


def emit_packing_kernel(module: TargetModule, kernel: Kernel) -> ir.Function:
    """The function that packs the right factor of the product that a kernel is: what it is made of, the panels."""
    statement, right = kernel.nests[0].body[0], read_on_the_right(kernel)
    assert isinstance(statement, Contraction)
    count = len(right)
    inner = emit_packing_of(module, f"{kernel.name}_packing_product", statement,
                            {buffer: place for place, buffer in enumerate(right)}, count + 1, count)
    return _entry(module, f"{kernel.name}_packing_0", inner, range(count + 1), 0)


def read_on_the_right(kernel: Kernel) -> list[Buffer]:
    """The buffers that the right factor of a product is made of."""
    statement = kernel.nests[0].body[0]
    assert isinstance(statement, Contraction)
    read = {x.buffer for x in walk(statement.right) if isinstance(x, Load)}
    return [buffer for buffer in kernel.buffers if buffer in read]


def read_elsewhere(kernel: Kernel) -> set[Buffer]:
    """The buffers that a product reads or writes, whatever its right factor is made of."""
    statement, *others = kernel.nests[0].body
    assert isinstance(statement, Contraction)
    return set(buffers_of((replace(statement, right=statement.left), *others)))


def emit_inline(module: TargetModule, kernel: Kernel, name: str) -> list[tuple[ir.Function, list[int]]]:
    """The functions of a kernel without contractions or scratch, for use inside of the module; and which buffers, by
    number, each takes before (first, until, threads, scratch, status)."""
    made = []
    for stage, nest in enumerate(kernel.nests):
        used = [k for k, buffer in enumerate(kernel.buffers) if buffer in buffers_of(nest.body)]
        arguments = {kernel.buffers[k]: place for place, k in enumerate(used)}
        function = _emit_loops(module, f"{name}_{stage}", kernel, nest, arguments, len(used), "alwaysinline")
        made.append((function, used))
    return made


def scratch_size(kernel: Kernel, target: Target) -> Dim:
    """Bytes of scratch memory that each thread needs."""
    largest: Dim = 0
    for nest in kernel.nests:
        total: Dim = sum(contraction_scratch(x, target) for x in nest.body if isinstance(x, Contraction))
        total = total + sum(attention_scratch(x, target) for x in nest.body if isinstance(x, BlockedAttention))
        for buffer in nest.locals:
            total = total + _padded(buffer)
        largest = maximum(largest, total)
    return largest


def _padded(buffer: Buffer) -> Dim:
    size = buffer.elements * buffer.type.dtype.itemsize
    if isinstance(size, int):
        return -(-size // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT
    return size + LOCAL_ALIGNMENT       # a symbolic size: aligned when it is used


def _emit_nest(module: TargetModule, kernel: Kernel, nest: Nest, name: str, shared: Mapping[int, int],
               packed: bool = False) -> ir.Function:
    """The function with the public signature, which unpacks the pointers, and the one with the loops.

    Only the parameters of a function can be declared not to overlap.
    """
    used = [b for b in kernel.buffers if b in buffers_of(nest.body)]
    first = len(kernel.inputs)
    place = {b: shared.get(k, k) for k, b in enumerate(kernel.buffers)}
    place = {b: k + (packed and k >= first) for b, k in place.items()}
    slots = list(dict.fromkeys(place[b] for b in used))
    arguments = {buffer: slots.index(place[buffer]) for buffer in used}
    if packed:
        slots.append(first)
    if isinstance(nest.body[0], Contraction):
        inner = emit_product(module, name + "_product", nest.body[0], arguments, len(slots), kernel.sizes,
                             len(slots) - 1 if packed else None)
    elif isinstance(nest.body[0], BlockedAttention):
        inner = emit_attention(module, name + "_attention", nest.body[0], arguments, len(slots), kernel.sizes)
    else:
        inner = _emit_loops(module, name + "_loops", kernel, nest, arguments, len(slots))
    return _entry(module, name, inner, slots, len(kernel.sizes))


def _entry(module: TargetModule, name: str, inner: ir.Function, slots: Sequence[int], symbols: int) -> ir.Function:
    """The function with the public signature that calls `inner` on the buffers in these slots."""
    function = ir.Function(module, SIGNATURE, name)
    function.attributes.add("nounwind")
    buffers, sizes, *rest = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    pointers = [b.load(b.gep(buffers, [ir.Constant(I64, slot)], source_etype=POINTER), typ=POINTER) for slot in slots]
    numbers = [b.load(b.gep(sizes, [ir.Constant(I64, k)], source_etype=I64), typ=I64) for k in range(symbols)]
    b.call(inner, [*pointers, *numbers, *rest][:len(inner.args)])
    b.ret_void()
    return function


def _emit_loops(module: TargetModule, name: str, kernel: Kernel, nest: Nest, arguments: Mapping[Buffer, int],
                pointers: int, inlining: str = "noinline") -> ir.Function:
    """void name(pointers..., sizes..., first, until, threads, scratch, status)."""
    kinds = [POINTER] * pointers + [I64] * len(kernel.sizes) + [*SHARE, POINTER, POINTER]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    for attribute in (inlining, "nounwind"):
        function.attributes.add(attribute)
    for argument in (*function.args[:pointers], function.args[-2]):
        argument.add_attribute("noalias")
    sizes = dict(zip(kernel.sizes, function.args[pointers:], strict=False))
    Loops(function, kernel, {b: function.args[k] for b, k in arguments.items()}, sizes).run(nest)
    return function


def buffers_of(body: Block) -> set[Buffer]:
    """Every buffer that the statements read or write."""
    listed = statements(body)
    read = {x.buffer for statement in listed for x in walk(*roots(statement)) if isinstance(x, Load)}
    return read | {s.buffer for s in listed if isinstance(s, Store)}
