"""Body of a kernel -> its loops, and the LLVM IR of them: made when somebody asks, or found on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon.graph.ir import Graph
from tenon.graph.text import key_of
from tenon.locks import cached_property, unforked
from tenon.observe import span
from tenon.program.kernel import CompiledKernel, name_of, with_schedule
from tenon.program.kernel_cache import find, key_for
from tenon.records import dataclass
from tenon.target import Target

if TYPE_CHECKING:
    from llvmlite import ir

    from tenon.loops.loop_ir import Kernel
    from tenon.loops.loop_pipeline import LoopPassStep


@dataclass(eq=False)
class LoweredKernel(CompiledKernel):
    """A kernel that is lowered to loops, and these to LLVM IR for a machine."""

    @cached_property
    def kernel(self) -> Kernel:
        """The loops; made again for a kernel that came from the disk."""
        from tenon.backends.cpu.lower_kernel import kernel_of  # local: slow to load, and often not needed
        return kernel_of(self.body, name_of(self.body), schedule=self.schedule, target=self.target)

    def module(self) -> ir.Module:
        """A module that defines the functions."""
        with unforked:
            from tenon.backends.cpu.lower_kernel import module_of  # local, as above
        return module_of(self.kernel, self.target, self.shared)

    @cached_property
    def ir(self) -> str:
        """Its text."""
        with unforked:
            from tenon.llvm.shared_functions import text_of  # local, as above
        return text_of(self.module())

    def require_code(self) -> None:
        """Raise where code cannot express the loops.  A kernel that may share memory will be other code: no text yet.
        """
        from tenon.backends.cpu.lower_kernel import module_of  # local, as above
        if self.facts.in_place:
            module_of(self.kernel, self.target)
        else:
            _ = self.ir

    @property
    def loops(self) -> str:
        """The loops as text, to be read."""
        from tenon.loops.loop_printer import print_kernel  # local, as above
        return print_kernel(self.kernel)

    @property
    def loop_steps(self) -> list[LoopPassStep]:
        """What each pass over the loops did: all are run again."""
        from tenon.backends.cpu.lower_kernel import loop_steps  # local, as above
        return loop_steps(self.body, self.name, self.target)

    packed: ClassVar[bool] = False      # whether the right factor of its product is packed before

    @property
    def schedules(self) -> str:
        """The schedules that the kernel was offered, with costs and refusals, as text."""
        from tenon.backends.cpu.schedule_listing import schedules_text  # local, as above
        return schedules_text(self.kernel, self.target, self.packed)


def make_unit(body: Graph, target: Target, text: str | None = None, schedule: str = "") -> LoweredKernel:
    """The kernel of a body, remembered or lowered now; raises where loops cannot express it."""
    text = text or key_of(body)
    key = key_for(with_schedule(text, schedule), body, target)
    found = None if key is None else find(key)
    if found is not None:
        return LoweredKernel(body, target, found[0], (), key, found[1], schedule)
    with unforked:
        from tenon.backends.cpu.lower_kernel import kernel_of, learn  # local, as above
    with span("lower", kernel=name_of(body)):
        kernel = kernel_of(body, name_of(body), text, schedule, target)
    unit = LoweredKernel(body, target, learn(body, kernel, target), (), key, None, schedule)
    unit.kernel = kernel
    return unit
