"""A host step of one frame -> a call of NumPy, or of what writes results where they lie.

What the sizes decide is known when the step first runs; memory in the arena is looked at again where it is another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.interpret import concrete, concrete_type, evaluate_op
from tenon.graph.ir import Value
from tenon.graph.kernels import KERNELS, kernel_for
from tenon.program.backend_interface import Array
from tenon.program.steps import HostStep, Storage
from tenon.records import dataclass
from tenon.types import TensorType


@dataclass(frozen=True, eq=False)
class HostOperand:
    """Memory that a step reads or writes: whether it lies at one place as long as the arena is the same."""

    storage: Storage
    type: TensorType
    stays: bool


class HostCall:
    """One host step, with the sizes of a frame."""

    def __init__(self, frame: Any, step: HostStep):
        sizes, node = frame.layout.sizes, step.node
        self.op, self.attrs = node.op, concrete(node.attrs, sizes)
        self.given = [None if x is None else concrete_type(x.type, sizes) for x in node.inputs]
        self.types = [concrete_type(x.type, sizes) for x in node.outputs]
        self.fixed: list[Any] = []
        self.inputs: list[HostOperand | None] = []
        for x, place, type in zip(node.inputs, step.arguments, self.given, strict=True):
            lies = isinstance(x, Value) and isinstance(place, Storage)
            self.inputs.append(_operand(frame, place, type) if lies else None)
            self.fixed.append(None if lies else frame.argument(x, place))
        self.outputs = [_operand(frame, place, type) for place, type in zip(step.outputs, self.types, strict=True)]
        self.arena: Any = self          # which is none: nothing was looked at yet
        self.given_arrays: list[Array | None] = []
        self.result_arrays: list[Array | None] = []
        self.moves = any(x is not None and not x.stays for x in (*self.inputs, *self.outputs))

    def run(self, frame: Any) -> None:
        """Do the step."""
        if self.moves or frame.arena is not self.arena:
            self._look(frame)
        inputs, outputs = self.given_arrays, self.result_arrays
        if self.op.into is not None and not KERNELS:
            self.op.into(outputs, *inputs, **self.attrs)
            return
        kernel = kernel_for(self.op, self.given, self.attrs) if KERNELS else None
        values = evaluate_op(self.op, inputs, self.attrs, self.types, kernel)
        for value, type, target in zip(values, self.types, outputs, strict=True):
            assert value.shape == type.shape and target is not None, self.op
            np.copyto(target, value)

    def _look(self, frame: Any) -> None:
        """Find the arrays of this run; those that stay where they are, once an arena."""
        new = frame.arena is not self.arena
        self.arena = frame.arena
        inputs = self.given_arrays if not new else list(self.fixed)
        outputs: list[Array | None] = self.result_arrays if not new else [None for _ in self.outputs]
        for operands, arrays in ((self.inputs, inputs), (self.outputs, outputs)):
            for k, operand in enumerate(operands):
                if operand is not None and (new or not operand.stays):
                    arrays[k] = frame.view(operand.storage, operand.type)
        self.given_arrays, self.result_arrays = inputs, outputs


def _operand(frame: Any, storage: Any, type: Any) -> HostOperand:
    return HostOperand(storage, type, frame.layout.of[storage].kind not in ("object", "moving"))
