"""Compiled calls, run twice on the same inputs: the first step whose results differ.

    with tn.debug.check(step, repeatable=True):
        step(x, y)          # raises NotRepeatable, and names the operation

Of the first run only sums of bytes are kept; its results are thrown away, and the second is the one that counts.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tenon.debug.array_summary import summary_of
from tenon.errors import TenonError
from tenon.graph.ir import Node
from tenon.program.steps import HostStep, KernelStep, LookStep
from tenon.records import dataclass, field
from tenon.runtime.instrumented_program import Halted, outputs_of
from tenon.runtime.run_frame import Frame


class NotRepeatable(TenonError, ArithmeticError):
    """An operation that gives other results for the same inputs; `operator` is its name."""

    operator: str = ""


@dataclass(eq=False)
class RepeatChecker:
    """Notes what every step makes in the first run, and compares in the second."""

    keeps: bool = True
    known: list[int] | None = None          # of the run before, in order
    seen: list[int] = field(default_factory=list)

    def begin_turn(self, turn: int) -> None:
        """Tell it that a run begins: the first of a call, or the one that repeats it."""
        if turn == 0:
            self.known = None
        elif self.known is None:
            self.known = self.seen
        self.seen = []

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        return False, bool(step.outputs)

    def see(self, frame: Frame, look: LookStep) -> None:
        made = outputs_of(frame, look.step)
        sum = 0
        for array in made:
            sum = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, sum)
        place = len(self.seen)
        self.seen.append(sum)
        if self.known is not None and (place >= len(self.known) or self.known[place] != sum):
            raise Halted(_error(look.step, made))


def _error(step: Any, made: list[Any]) -> NotRepeatable:
    node: Node = step.node
    body = step.unit.body.nodes if isinstance(step, KernelStep) else (node,)
    where = next((n.loc for n in reversed(body) if n.loc is not None), node.loc)
    name = " and ".join(dict.fromkeys(n.op.name for n in body)) if len(body) < 4 else step.unit.name
    error = NotRepeatable(
        f"{name}: gives other results when it runs again on the same inputs", where,
        why="the second time " + ", ".join(str(summary_of(x, bins=0)) for x in made),
        hint="an operator of your own must depend on nothing but its inputs; random numbers come from tn.rand and the "
             "like, which keep their state")
    error.operator = node.op.name
    return error
