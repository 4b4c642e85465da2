"""The loops of a kernel -> LLVM's text for a machine, as tests read it."""

from tenon.backends.cpu.lower_kernel import module_of
from tenon.llvm.shared_functions import text_of
from tenon.loops.loop_ir import Kernel
from tenon.target import Target


def ir_of(kernel: Kernel, target: Target) -> str:
    """The text of a module that defines the kernel's functions."""
    return text_of(module_of(kernel, target))
