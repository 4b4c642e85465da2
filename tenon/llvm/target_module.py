"""A module of LLVM's that knows for which machine its functions are written: an emitter asks `target_of(b)`."""

from __future__ import annotations

from llvmlite import ir

from tenon.target import Target


class TargetModule(ir.Module):    # type: ignore[misc]
    """A module for one machine."""

    def __init__(self, target: Target, name: str = "") -> None:
        super().__init__(name)
        self.target = target


def target_of(b: ir.IRBuilder) -> Target:
    """The machine of the module that a builder writes in."""
    target: Target = b.module.target
    return target
