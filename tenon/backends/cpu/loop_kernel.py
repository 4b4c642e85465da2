"""A loop with little work in each iteration -> one kernel: the loop is machine code, what it carries is in registers.

The kernels of condition and body are emitted into one function, on memory of the function's own, where LLVM puts them
together as if they had been written so.  Larger loops are steps of the program, which cost some nanoseconds an
iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from llvmlite import ir

from tenon.backends.cpu.codegen import SIGNATURE, emit_inline
from tenon.backends.cpu.scalar_codegen import I32, I64, POINTER
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import print_graph
from tenon.llvm.ir_printer import print_module
from tenon.llvm.safepoints import INTERRUPTED, KERNEL_LOOP_MASK, interrupts
from tenon.llvm.target_module import TargetModule
from tenon.llvm.work_partition import whole
from tenon.locks import cached_property
from tenon.program.kernel import UNKNOWN_TRIP_COUNT, CompiledKernel
from tenon.program.kernel_cache import find, key_for
from tenon.program.kernel_metadata import KernelMetadata, Shared
from tenon.program.loop_body import LoopBody
from tenon.program.steps import BranchStep, CopyStep, KernelStep, LoopStep, Step, Storage, leaves, resolve
from tenon.records import dataclass
from tenon.target import Target
from tenon.types import bool_

if TYPE_CHECKING:
    from tenon.loops.loop_pipeline import LoopPassStep

MAX_KERNELS = 24            # in one loop
MAX_WORK = 2048             # elements an iteration
MAX_BYTES = 8192            # of memory on the stack
ALIGNMENT = 64
I8 = ir.IntType(8)


def suits(loop_body: LoopBody) -> bool:
    """Whether the loop is worth a kernel of its own."""
    listed = list(leaves(loop_body.steps))
    if len(listed) > MAX_KERNELS or any(isinstance(step, LoopStep) for step in _all(loop_body.steps)):
        return False
    for step in listed:
        if not isinstance(step, (KernelStep, CopyStep)) or (isinstance(step, KernelStep) and not _is_plain(step.unit)):
            return False
    sizes = [x.bytes for x in (*loop_body.own, *(row for row, _ in loop_body.slices))]
    small = all(isinstance(n, int) for n in sizes) and sum(n for n in sizes if isinstance(n, int)) <= MAX_BYTES
    return small and work_of_iteration(loop_body) <= MAX_WORK


def _all(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, (BranchStep, LoopStep)):
            for part in step.parts:
                yield from _all(part)


def _is_plain(unit: CompiledKernel) -> bool:
    facts = unit.facts
    return not facts.checks and not facts.sizes and facts.scratch == 0


def work_of_iteration(loop_body: LoopBody) -> int:
    """Elements computed or read."""
    return sum(step.unit.work({}) for step in leaves(loop_body.steps) if isinstance(step, KernelStep))


@dataclass(frozen=True)
class LoopCompiler:
    """What makes kernels of loops for a machine."""

    target: Target

    def suits(self, loop_body: LoopBody) -> bool:
        """Whether the loop is worth a kernel of its own."""
        return suits(loop_body)

    def make_whole(self, node: Node, given: Sequence[Storage], loop_body: LoopBody) -> LoopKernel:
        """The kernel of a loop that `suits`."""
        return make_whole(self.target, node, given, loop_body)


@dataclass(eq=False)
class LoopKernel(CompiledKernel):
    """The kernel that a loop is.  Its inputs are `loop_body.inputs`, its outputs the carried values and stacked
    arrays."""

    loop_body: LoopBody | None = None
    alone: ClassVar[bool] = True

    def module(self) -> ir.Module:
        """A module that defines the function."""
        module = TargetModule(self.target, self.name)
        loop_body = self._loop_body
        inner = emit_whole(module, f"{self.name}_loop", loop_body)
        function = ir.Function(module, SIGNATURE, f"{self.name}_0")
        b = ir.IRBuilder(function.append_basic_block("entry"))
        with b.if_then(b.icmp_unsigned("==", function.args[2], ir.Constant(I32, 0))):
            b.call(inner, [b.load(b.gep(function.args[0], [ir.Constant(I64, k)], source_etype=POINTER), typ=POINTER)
                           for k in range(len(inner.args))])
        b.ret_void()
        return module

    @cached_property
    def ir(self) -> str:
        """Its text."""
        return print_module(self.module())

    @property
    def inner(self) -> list[KernelStep]:
        """The kernels that an iteration runs."""
        return [step for step in leaves(self._loop_body.steps) if isinstance(step, KernelStep)]

    @property
    def _loop_body(self) -> LoopBody:
        assert self.loop_body is not None
        return self.loop_body

    @property
    def endless(self) -> bool:
        """Whether the data decide when this loop or one inside ends."""
        return self._loop_body.proceed is not None or any(step.unit.endless for step in self.inner)

    @property
    def loops(self) -> str:
        """The loops of the kernels inside."""
        return "\n".join(unit.loops for unit in self._units)

    @property
    def loop_steps(self) -> list[LoopPassStep]:
        """The steps of the kernels inside, one after the other."""
        return [step for unit in self._units for step in unit.loop_steps]

    @property
    def _units(self) -> Iterable[CompiledKernel]:
        return dict.fromkeys(step.unit for step in self.inner)

    def work(self, sizes: object) -> int:
        """Of all iterations; a loop of unknown length counts as a long one."""
        loop_body = self._loop_body
        trips = UNKNOWN_TRIP_COUNT if loop_body.length is None else loop_body.length
        return (1 + work_of_iteration(loop_body)) * trips

    def sharing(self, shared: Shared) -> CompiledKernel:
        """The same kernel, since it may not share memory."""
        assert not shared
        return self


def make_whole(target: Target, node: Node, given: Sequence[Storage], loop_body: LoopBody) -> LoopKernel:
    """The kernel of a loop that `suits`; the node's inputs lie where `given` says."""
    interrupts()                # which its code may call
    nodes = tuple(step.node for step in leaves(loop_body.steps) if isinstance(step, KernelStep))
    key = key_for(_text(node, given, loop_body), Graph("whole", (), (*nodes, node)), target)
    found = None if key is None else find(key)
    facts = KernelMetadata(1, (), 0, frozenset(), (), ())
    body = Graph(node.op.name, (), (node,), node.outputs)
    return LoopKernel(body, target, facts, (), key, found and found[1], loop_body=loop_body)


def _text(node: Node, given: Sequence[Storage], loop_body: LoopBody) -> str:
    """All that decides the code: the graphs, and of each input its number among the kernel's, or its elements."""
    params = tuple(x for x in dict.fromkeys(node.inputs) if isinstance(x, Value))
    inputs = loop_body.inputs
    places = [inputs.index(x) if x in inputs else x.data.tobytes().hex() if x.data is not None else ""
              for x in map(resolve, given)]
    return f"whole {places} {print_graph(Graph('loop', params, (node,), node.outputs), locations=False)}"


# ---------------------------------------------------------------- code

def emit_whole(module: ir.Module, name: str, loop_body: LoopBody) -> ir.Function:
    """void name(inputs..., carried results..., stacked results...), for use inside of its module."""
    inputs, results = loop_body.inputs, len(loop_body.carried) + len(loop_body.stacked)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * (len(inputs) + results)), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("alwaysinline")
    for argument in function.args:
        argument.add_attribute("noalias")
    emitter = _LoopEmitter(module, function, loop_body)
    emitter.places.update(zip(map(resolve, inputs), function.args, strict=False))
    emitter.run(function.args[len(inputs):])
    return function


class _LoopEmitter:
    """Writes the steps of a loop into a function."""

    def __init__(self, module: ir.Module, function: ir.Function, loop_body: LoopBody):
        self.module, self.loop_body = module, loop_body
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        self.b = ir.IRBuilder(function.append_basic_block("start"))
        self.places: dict[Storage, ir.Value] = {}
        self.functions: dict[CompiledKernel, Sequence[tuple[ir.Function, Sequence[int]]]] = {}

    def run(self, results: Sequence[ir.Value]) -> None:
        """The whole function."""
        loop_body, b = self.loop_body, self.b
        for carried, initial in zip(loop_body.carried, loop_body.initial, strict=True):
            self.copy(self.place(carried), self.place(initial), carried)
        with self.loop() as iteration:
            for row, array in loop_body.slices:
                self.places[row] = self.row(self.place(array), row, iteration)
            self.steps(loop_body.body)
            for (place, _), whole in zip(loop_body.stacked, results[len(loop_body.carried):], strict=True):
                self.copy(self.row(whole, place, iteration), self.place(place), place)
            self.carry_on()
        for carried, result in zip(loop_body.carried, results, strict=False):
            self.copy(result, self.place(carried), carried)
        b.ret_void()
        self.entry.branch(b.function.blocks[1])

    @contextmanager
    def loop(self) -> Iterator[ir.Value]:
        """The blocks around a body; gives the number of the iteration."""
        b, loop_body = self.b, self.loop_body
        before, head, body, done = b.block, *(b.append_basic_block(name) for name in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        iteration = b.phi(I64)
        iteration.add_incoming(ir.Constant(I64, 0), before)
        if loop_body.proceed is not None:
            self.steps(loop_body.condition)
            more = b.icmp_unsigned("!=", b.load(self.place(loop_body.proceed), typ=I8), ir.Constant(I8, 0))
        else:
            more = b.icmp_unsigned("<", iteration, ir.Constant(I64, loop_body.length))
        b.cbranch(more, body, done)
        b.position_at_end(body)
        yield iteration
        after = b.add(iteration, ir.Constant(I64, 1))
        if loop_body.proceed is not None:
            self.ask_now_and_then(after, done)
        iteration.add_incoming(after, b.block)
        b.branch(head)
        b.position_at_end(done)

    def ask_now_and_then(self, iteration: ir.Value, out: ir.Block) -> None:
        """Leave a loop that may have no end where a signal ends the program."""
        b = self.b
        last = self.entry.alloca(I64)
        self.entry.store(ir.Constant(I64, 0), last)
        ask, on = b.append_basic_block("ask"), b.append_basic_block("on")
        some = b.and_(iteration, ir.Constant(I64, KERNEL_LOOP_MASK))
        b.cbranch(b.icmp_unsigned("==", some, ir.Constant(I64, 0)), ask, on).set_weights([1, KERNEL_LOOP_MASK])
        b.position_at_end(ask)
        name, kind = INTERRUPTED, ir.FunctionType(I32, [POINTER])
        interrupted = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        b.cbranch(b.icmp_unsigned("==", b.call(interrupted, [last]), ir.Constant(I32, 0)), on, out)
        b.position_at_end(on)

    def carry_on(self) -> None:
        """Copy what the iteration made to where the next one reads it: all at once."""
        pairs = [(x, resolve(y)) for x, y in zip(self.loop_body.carried, self.loop_body.following, strict=True)
                 if x is not resolve(y)]
        kept = {}
        for _, source in pairs:
            if source in self.loop_body.carried and source not in kept:
                kept[source] = self.memory(source)
                self.copy(kept[source], self.place(source), source)
        for target, source in pairs:
            self.copy(self.place(target), kept.get(source) or self.place(source), target)

    # ------------------------------------------------------------ steps

    def steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case KernelStep():
                    self.kernel(step)
                case CopyStep(source=source, target=target):
                    if resolve(source) is not resolve(target):
                        self.copy(self.place(target), self.place(source), target)
                case BranchStep():
                    self.branch(step)
                case _:
                    raise AssertionError(step)

    def kernel(self, step: KernelStep) -> None:
        buffers = (*step.inputs, *step.outputs, *step.temporaries)
        for function, taken in self.code_of(step.unit):
            rest = [*whole(), ir.Constant(POINTER, None), ir.Constant(POINTER, None)]
            pointers = [self.further(self.place(buffers[k]), step.pieces.get(k, 0)) for k in taken]
            self.b.call(function, [*pointers, *rest][:len(function.args)])

    def code_of(self, unit: CompiledKernel) -> Sequence[tuple[ir.Function, Sequence[int]]]:
        """The functions of a kernel, each with the buffers that it takes."""
        if unit not in self.functions:
            name = f"{self.b.function.name}.{len(self.functions)}"
            if isinstance(unit, LoopKernel):
                inner = emit_whole(self.module, name, unit._loop_body)
                self.functions[unit] = [(inner, range(len(inner.args)))]
            else:
                self.functions[unit] = emit_inline(self.module, unit.kernel, name)
        return self.functions[unit]

    def branch(self, step: BranchStep) -> None:
        b, last = self.b, len(step.branches) - 1
        if step.choice.type.dtype is bool_:
            number = b.zext(b.load(self.place(step.choice), typ=I8), I64)
        else:
            number = b.load(self.place(step.choice), typ=I64)
        ends = b.append_basic_block("join")
        blocks = [b.append_basic_block(f"branch{k}") for k in range(last + 1)]
        below = b.select(b.icmp_signed("<", number, ir.Constant(I64, 0)), ir.Constant(I64, 0), number)
        choice = b.switch(below, blocks[last])
        for k, block in enumerate(blocks):
            if k < last:
                choice.add_case(ir.Constant(I64, k), block)
            b.position_at_end(block)
            self.steps(step.branches[k])
            b.branch(ends)
        b.position_at_end(ends)

    # ------------------------------------------------------------ memory

    def place(self, storage: Storage) -> ir.Value:
        """The address of a storage."""
        storage = resolve(storage)
        if storage not in self.places:
            self.places[storage] = self.constant(storage) if storage.data is not None else self.memory(storage)
        return self.places[storage]

    def memory(self, storage: Storage) -> ir.Value:
        """Memory on the stack."""
        slot = self.entry.alloca(ir.ArrayType(I8, max(1, int(storage.bytes))))
        slot.align = ALIGNMENT
        return slot

    def constant(self, storage: Storage) -> ir.Value:
        assert storage.data is not None
        data = bytearray(storage.data.tobytes())
        kind = ir.ArrayType(I8, len(data))
        held = ir.GlobalVariable(self.module, kind, f"{self.b.function.name}.constant{len(self.places)}")
        held.initializer, held.global_constant, held.linkage = ir.Constant(kind, data), True, "internal"
        held.align = ALIGNMENT
        return held

    def row(self, array: ir.Value, row: Storage, iteration: ir.Value) -> ir.Value:
        """The address of the row of an array that this iteration reads or writes."""
        if self.loop_body.reverse:
            iteration = self.b.sub(ir.Constant(I64, int(self.loop_body.length or 0) - 1), iteration)
        offset = self.b.mul(iteration, ir.Constant(I64, int(row.bytes)))
        return self.b.gep(array, [offset], source_etype=I8)

    def further(self, place: ir.Value, offset: int) -> ir.Value:
        """The address so many bytes behind."""
        return self.b.gep(place, [ir.Constant(I64, offset)], source_etype=I8) if offset else place

    def copy(self, target: ir.Value, source: ir.Value, storage: Storage) -> None:
        size = int(storage.bytes)
        if size:
            self.b.call(_memcpy(self.module), [target, source, ir.Constant(I64, size), ir.Constant(ir.IntType(1), 0)])


def _memcpy(module: ir.Module) -> ir.Function:
    name, kind = "llvm.memcpy.p0.p0.i64", ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, ir.IntType(1)])
    return module.globals.get(name) or ir.Function(module, kind, name)
