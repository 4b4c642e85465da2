"""What assembling asks of a backend, beside kernels: products whose factors are packed before, loops that are kernels.

`tenon.backends.cpu.compile_graph` hands one to `assemble`; nothing here knows of machine code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tenon.graph.ir import Node
from tenon.program.kernel import CompiledKernel
from tenon.program.loop_body import LoopBody
from tenon.program.steps import KernelStep, LoopStep, Step, Storage


class Prepacking(Protocol):
    """Products whose right factor rarely changes."""

    def right_of(self, step: Step, most_rows: int | None = None) -> tuple[tuple[Storage, ...], int] | None:
        """(what the right factor is made of, its bytes when it is packed); None where the step is no such product."""

    def is_worth_keeping(self, step: Step, right: tuple[Storage, ...], size: int) -> bool:
        """Whether panels made once are much better than panels made in every call."""

    def is_convolution(self, step: Step) -> bool:
        """Whether the step is a convolution that was turned for the sake of packing."""

    def is_packing(self, unit: CompiledKernel) -> bool:
        """Whether the kernel only packs."""

    def in_two(self, step: KernelStep, right: tuple[Storage, ...], size: int) -> tuple[KernelStep, KernelStep]:
        """The step that packs the right factor, and the product that uses the panels."""

    def read_by(self, steps: Iterable[Step]) -> Iterator[Storage]:
        """What steps read, but for what they have panels of."""

    def prepack(self, loop: LoopStep) -> tuple[list[Step], LoopStep]:
        """(the steps that pack before the loop, the loop that uses what they packed)."""


class LoopKernels(Protocol):
    """Loops of little work in each iteration."""

    def suits(self, loop_body: LoopBody) -> bool:
        """Whether the loop is worth a kernel of its own."""

    def make_whole(self, node: Node, given: Sequence[Storage], loop_body: LoopBody) -> CompiledKernel:
        """The kernel of a loop that `suits`; the node's inputs lie where `given` says."""


class KernelBackend(Protocol):
    """Both, loaded when they are asked for."""

    @property
    def packing(self) -> Prepacking: ...

    @property
    def loops(self) -> LoopKernels: ...
