"""Products with a factor that rarely changes -> that factor packed before, and the products that use what was packed.

A product packs its right factor into panels, in the order in which the tiles read it.  With few rows that takes as long
as the product itself.  A factor that no iteration of a loop changes is packed before the loop; one that is made of
constant arguments is packed by a program of its own, which is run when they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from llvmlite import ir

from tenon.backends.cpu.codegen import emit_kernel, emit_packing_kernel, read_elsewhere, read_on_the_right
from tenon.backends.cpu.lowered_kernel import LoweredKernel
from tenon.backends.cpu.product_schedules import contraction_scratch, packed_right
from tenon.dims.symbolic_dim import product
from tenon.graph.text import key_of
from tenon.llvm.target_module import TargetModule
from tenon.locks import cached_property
from tenon.loops.loop_ir import Contraction
from tenon.ops.channels_last import conv_channels_last
from tenon.program.kernel import CompiledKernel, count, name_of
from tenon.program.kernel_cache import find, key_for
from tenon.program.kernel_metadata import KernelMetadata, Shared
from tenon.program.steps import BranchStep, KernelStep, LoopStep, Step, Storage, homes, leaves, resolve
from tenon.records import dataclass, replace
from tenon.types import TensorType, uint8

MAX_ROWS = 256              # with more, packing takes little of the time
MAX_ROWS_KEPT = 96          # with more, reading panels in place of the factor gains nothing worth their memory


@dataclass(eq=False)
class Packing(LoweredKernel):
    """The kernel that packs the right factor of a product: from what the factor is made of, to panels."""

    @cached_property
    def name(self) -> str:
        return f"{name_of(self.body)}_packing"

    def module(self) -> ir.Module:
        """A module that defines the function."""
        module = TargetModule(self.target, self.name)
        emit_packing_kernel(module, self.kernel)
        return module


@dataclass(eq=False)
class Packed(LoweredKernel):
    """The product, given the panels behind its inputs."""

    packed: ClassVar[bool] = True

    def module(self) -> ir.Module:
        """A module that defines the functions."""
        module, outputs = TargetModule(self.target, self.name), len(self.kernel.inputs)
        emit_kernel(module, self.kernel, {outputs + output: source for output, source in self.shared}, packed=True)
        return module

    def is_one_call(self, sizes: Mapping[str, int]) -> bool:
        """Panels are fetched one ahead, so each call waits for its first, which few rows do not make up for."""
        results = [node.output.type for node in self.body.nodes if node.op.name == "matmul"]
        return not results or any(count(x.size, sizes) <= MAX_ROWS * count(x.shape[-1], sizes) for x in results)

    def sharing(self, shared: Shared) -> CompiledKernel:
        """The same kernel for outputs that have the memory of inputs."""
        if shared == self.shared:
            return self
        if shared not in self._variants:
            self._variants[shared] = _variant(Packed, self, self.facts, "packed", shared)
        return self._variants[shared]


def _part(kind: type[CompiledKernel], unit: CompiledKernel, facts: KernelMetadata, what: str) -> CompiledKernel:
    """A part of a kernel, the same one wherever that kernel is called."""
    return unit.others.setdefault(what, _variant(kind, unit, facts, what))


def _variant(kind: type[CompiledKernel], unit: CompiledKernel, facts: KernelMetadata, what: str,
             shared: Shared = ()) -> CompiledKernel:
    """A variant of a kernel, with its code where that is on the disk."""
    key = key_for(f"{what} {key_of(unit.body)}", unit.body, unit.target, shared)
    found = None if key is None else find(key)
    return kind(unit.body, unit.target, facts, shared, key, None if found is None else found[1])


def prepack(loop: LoopStep) -> tuple[list[Step], LoopStep]:
    """(the steps that pack before the loop, the loop that uses what they packed)."""
    changed = {x for step in leaves(loop.body) for y in step.outputs for x in homes(y)}
    changed |= {resolve(move.target) for move in loop.advance}
    before: list[Step] = []
    body: list[Step] = []
    for step in loop.body:
        found = right_of(step, MAX_ROWS)
        if found is None or not changed.isdisjoint(x for y in found[0] for x in (resolve(y), *homes(y))):
            body.append(step)
            continue
        assert isinstance(step, KernelStep)
        packing, packed = in_two(step, *found)
        before.append(packing)
        body.append(packed)
    return before, replace(loop, body=tuple(body))


def in_two(step: KernelStep, right: tuple[Storage, ...], size: int) -> tuple[KernelStep, KernelStep]:
    """The step that packs a product's right factor, and the product that uses the panels."""
    panels = Storage("arena", TensorType(uint8, (size,)))
    assert isinstance(step.unit, LoweredKernel)
    packing = _part(Packing, step.unit, KernelMetadata(1, (), 0, frozenset(), (), ()), "packing")
    packed = _part(Packed, step.unit, replace(step.unit.facts, scratch=_scratch(step.unit)), "packed")
    return (KernelStep(step.node, packing, right, (panels,)),
            replace(step, unit=packed, inputs=(*step.inputs, panels)))


def read_by(steps: Iterable[Step]) -> Iterator[Storage]:
    """What steps read, but for what they have panels of."""
    for step in steps:
        match step:
            case KernelStep(unit=Packed()):
                kernel = step.unit.kernel
                elsewhere, count = read_elsewhere(kernel), len(kernel.inputs)
                yield from (x for x, buffer in zip(step.inputs[:count], kernel.inputs, strict=True)
                            if buffer in elsewhere)
                yield from step.inputs[count:]
            case BranchStep():
                yield step.choice
                yield from (x for part in step.parts for x in read_by(part))
            case LoopStep():
                yield from (move.source for move in (*step.start, *step.advance))
                yield from () if step.proceed is None else (step.proceed,)
                yield from (x for part in step.parts for x in read_by(part))
            case _:
                yield from step.inputs


def _scratch(unit: LoweredKernel) -> int:
    """Bytes of scratch memory that the product needs where its right factor is packed: its schedule is another one."""
    statement = unit.kernel.nests[0].body[0]
    assert isinstance(statement, Contraction)
    return contraction_scratch(statement, unit.target, packed=True)


def is_packing(unit: CompiledKernel) -> bool:
    """Whether the kernel only packs."""
    return isinstance(unit, Packing)


def is_convolution(step: Step) -> bool:
    """Whether the step is a convolution that was put channels last for the sake of packing."""
    return isinstance(step, KernelStep) and any(node.op is conv_channels_last for node in step.unit.body.nodes)


def is_worth_keeping(step: Step, right: tuple[Storage, ...], size: int) -> bool:
    """Whether panels made once are much better than panels made in every call: a convolution's, which are put
    channels last too, those of a product of few rows, and those that are smaller than what they are made of."""
    return is_convolution(step) or right_of(step, MAX_ROWS_KEPT) is not None or \
        size < count(sum(x.bytes for x in right), {})


def right_of(step: Step, most_rows: int | None = None) -> tuple[tuple[Storage, ...], int] | None:
    """(what the right factor is made of, its bytes when it is packed) of a product with no more rows than that."""
    if not isinstance(step, KernelStep) or type(step.unit) is not LoweredKernel:
        return None
    facts = step.unit.facts
    if (facts.scratch == 0 and not is_convolution(step)) or facts.sizes or facts.stages != 1:
        return None
    kernel = step.unit.kernel
    statement = kernel.nests[0].body[0]
    if not isinstance(statement, Contraction):
        return None
    rows, size = product(x.extent for x in statement.rows), packed_right(statement, step.unit.target)
    right = read_on_the_right(kernel)
    if size is None or not isinstance(rows, int) or not set(right) <= set(kernel.inputs):
        return None
    if most_rows is not None and rows > most_rows:
        return None
    return tuple(step.inputs[kernel.inputs.index(buffer)] for buffer in right), size
